"""Documents agree with the code: generated pages are what their generators write, code in READMEs runs."""

from __future__ import annotations

import ast
import csv
import doctest
import inspect
import json
import re
import runpy
import shlex
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd
import pytest
import typer
import yaml
from reveal_leaderboard.cli import app as board_app
from typer.testing import CliRunner

import reveal_bench
from reveal_bench import api
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.cli import app as bench_app
from reveal_bench.cli.help import EXAMPLES
from reveal_bench.cli.score import metrics
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds import KINDS
from reveal_bench.metrics import METRICS
from tests.conftest import ROOT, World
from tests.dataset.card_folders import study
from tests.markdown import SHELLS, Block, anchors, blocks, code_in_text, links, pages, words_of
from tests.syntax import names_defined, problems_of_example


def place_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


MODULES = sorted(path.parent for path in (ROOT / "reveal_bench" / "evaluate_modules").glob("*/README.md"))


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(metrics)
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


WRITE = runpy.run_path(str(ROOT / "docs" / "write_reference.py"))


def test_metrics_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == WRITE["metrics_page"](), "docs/metrics.md drifted: run python docs/write_reference.py"


def test_the_page_of_functions_is_up_to_date() -> None:
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert written == WRITE["api_page"](), "docs/api.md drifted: run python docs/write_reference.py"
    for name in api.__all__:
        assert f"`rb.{name}(" in written or f"### `{name}`" in written
    assert not re.search(r":\w+:`", written), "a reStructuredText role is left"


def test_metrics_page_holds_every_metric() -> None:
    page = WRITE["metrics_page"]()
    for metric in METRICS.values():
        assert f"| `{metric.name}` |" in page
        assert f"### `{metric.function}(" in page
    assert not re.search(r":\w+:`", page), "a reStructuredText role is left"


def test_metrics_command() -> None:
    text = run()
    for metric in METRICS.values():
        assert re.search(rf"^  {metric.name} ", text, re.MULTILINE)
        assert metric.undefined in text
    assert "AUROC" not in run("point_hit")
    document = json.loads(run("--json"))
    assert document["schema"] == 1
    assert [row["name"] for row in document["metrics"]] == list(METRICS)
    (difference,) = json.loads(run("mean_absolute_difference", "--json"))["metrics"]
    assert (difference["low"], difference["high"], difference["better"]) == (0, None, "lower")  # no upper end: null
    assert set(difference) == {
        "name", "title", "low", "high", "better", "undefined", "source", "formula", "oracle", "family", "function",
        "options", "symmetric", "version",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"`names` must be among point_hit, .*, got 'luck'"):
        run("luck")


def test_modules_are_found() -> None:
    folders = {path.parent for path in (ROOT / "reveal_bench" / "evaluate_modules").glob("*/*.py")}
    assert set(MODULES) == folders


@pytest.mark.parametrize("folder", MODULES, ids=lambda folder: folder.name)
def test_evaluate_modules_are_ready_for_the_hub(folder: Path) -> None:
    files = {path.name for path in folder.iterdir() if path.is_file()}
    assert files == {"README.md", "app.py", "requirements.txt", f"{folder.name}.py"}
    card = yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert (card["sdk"], card["app_file"]) == ("gradio", "app.py")
    assert {"evaluate", "metric"} <= set(card["tags"])
    assert f'launch_widget("{folder.name}")' in (folder / "app.py").read_text(encoding="utf-8")
    assert "reveal-bench[evaluate]" in (folder / "requirements.txt").read_text(encoding="utf-8")
    # `evaluate` finds what a module needs with a regular expression: absolute imports, one on a line
    code = (folder / f"{folder.name}.py").read_text(encoding="utf-8")
    for line in re.findall(r"^ *(?:import|from) .*$", code, re.MULTILINE):
        assert re.fullmatch(r"import [\w.]+|from typing import Any", line), line
    (wrapper,) = [node for node in ast.parse(code).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    methods = [node.name for node in wrapper.body if isinstance(node, ast.FunctionDef)]
    assert methods == ["_info", "read", "_compute"]  # thin: everything else is in reveal_bench.metrics


@pytest.mark.parametrize("folder", MODULES, ids=lambda folder: folder.name)
def test_readme_code_of_evaluate_modules_runs(folder: Path) -> None:
    pytest.importorskip("evaluate", reason="the extra [evaluate] is not installed: see README")
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "```python\n>>> " in text
    failed, tried = doctest.testfile(str(folder / "README.md"), module_relative=False)
    assert (failed, tried > 2) == (0, True)


PROGRAMS = {"reveal-bench": typer.main.get_command(bench_app), "reveal-leaderboard": typer.main.get_command(board_app)}
USAGE_ERROR: Any = typer.BadParameter.__base__
MAKE_TARGETS = set(re.findall(r"(?m)^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8")))
TOOLS = {
    "cd",
    "cp",
    "curl",
    "docker",
    "echo",
    "export",
    "git",
    "hf",
    "inspect",
    "pip",
    "pre-commit",
    "python3",
    "source",
}
"""Other programs that blocks of the shell may start; a line of prose starts with none."""


def commands_below(command: Any) -> Iterator[Any]:
    yield command
    for name in getattr(command, "commands", {}):
        yield from commands_below(command.commands[name])


def command_of(program: str, words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that words begin with, and the words after it."""
    command: Any = PROGRAMS[program]
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def options_of(command: Any) -> set[str]:
    return {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}


def problem_of(words: list[str], *, is_whole: bool = True) -> str | None:
    """Return the problem of a command of the project, make or Python; in a sentence it may lack arguments."""
    program, *rest = words
    program = program.removeprefix(".venv/bin/")
    if program == "make":
        unknown = {word for word in rest if "=" not in word} - MAKE_TARGETS
        return f"no targets {sorted(unknown)}" if unknown else None
    if program == "python":
        return problem_of_python(rest)
    if program not in PROGRAMS:
        return None if program in TOOLS else f"{program!r} is not a program that pages may start"
    command, rest = command_of(program, rest)
    if hasattr(command, "commands"):
        return None if rest in ([], ["..."], ["--help"]) else f"no command {rest[0]}"
    if "--help" in rest:
        return None
    is_whole &= "..." not in rest
    context = command.make_context(program, [], resilient_parsing=True)
    try:
        options, extra, _ = command.make_parser(context).parse_args(
            [word.strip("[]") for word in rest if word != "..."]
        )
    except USAGE_ERROR as error:
        return error.format_message()
    required = [one.name for one in command.params if one.required and not one.envvar]
    missing = [name for name in required if options.get(name) in (None, ())]
    if extra or (missing and is_whole):
        return f"unexpected {extra}, missing {missing}"
    for name, hint in get_type_hints(inspect.unwrap(command.callback)).items():
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        if choices and not str(options.get(name)).isupper() and options.get(name) not in (None, *choices):
            return f"{name}: {options[name]!r} must be one of {', '.join(choices)}"
    return None


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_help_are_valid_commands(name: str) -> None:
    words = ["reveal-bench", name, *shlex.split(EXAMPLES[name].partition(" > ")[0])]
    assert problem_of(words) is None
    help_text = CliRunner().invoke(bench_app, [name, "--help"]).stdout
    assert help_text.endswith(f"\n\nExample:\n  reveal-bench {name} {EXAMPLES[name]}\n")
    assert "<list[" not in help_text


def problem_of_python(words: list[str]) -> str | None:
    if words[:1] == ["-c"]:
        return "; ".join(problems_of_example(words[1])) or None
    place = words[1].replace(".", "/") if words[:1] == ["-m"] else words[0]
    if (ROOT / place).exists() or (ROOT / f"{place}.py").exists() or words[1] in {"lmms_eval", "pip", "pytest"}:
        return None
    return f"python: no file {place}"


def problems_of_commands(block: Block) -> Iterator[str]:
    checked = subprocess.run(
        ["bash", "-n"], input="\n".join(block.commands), capture_output=True, text=True, check=False
    )
    if checked.returncode:
        yield checked.stderr
        return
    for line in block.commands:
        for words in words_of(line):
            problem = problem_of(words)
            if problem:
                yield f"{line}: {problem}"


def problems_of_python(block: Block) -> list[str]:
    text = block.text
    if ">>> " in text:
        text = "".join(example.source for example in doctest.DocTestParser().get_examples(text))
    return problems_of_example(text, rb=reveal_bench)  # a page imports it once, in its first block


def parse_csv(text: str) -> None:
    widths = {len(row) for row in csv.reader(text.splitlines(), strict=True)}
    if len(widths) != 1:
        raise ValueError(f"rows of {sorted(widths)} cells")


def parse_bibtex(text: str) -> None:
    for entry in re.findall(r"(?ms)^@.*?(?=^@|\Z)", text):
        if not re.match(r"@\w+\{[\w:-]+,\n +\w+ *= *[{\"\d]", entry) or entry.count("{") != entry.count("}"):
            raise ValueError(f"no entry: {entry}")


PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "jsonl": lambda text: [json.loads(line) for line in text.splitlines()],
    "yaml": yaml.safe_load,
    "toml": tomllib.loads,
    "csv": parse_csv,
    "bibtex": parse_bibtex,
}
"""Language of a block -> what reads it; Python and the shell are checked further, and a text shows files or output."""


def problems_of_block(block: Block) -> Iterable[str]:
    if block.language in SHELLS:
        return problems_of_commands(block)
    if block.language == "python":
        return problems_of_python(block)
    if block.language == "text":
        return re.findall(r"(?m)^(?:\$ |reveal-|make |pip |import |from \w+ import ).*", block.text)
    if block.language not in PARSERS:
        return [f"must say what it is in: python, {', '.join((*SHELLS, *PARSERS, 'text'))}, got {block.language!r}"]
    try:
        PARSERS[block.language](block.text)
    except ValueError as error:
        return [f"no {block.language}: {error}"]
    return []


@pytest.mark.parametrize("page", pages(), ids=place_of)
def test_every_block_is_what_it_says(page: Path) -> None:
    assert [f"{block}: {problem}" for block in blocks(page) for problem in problems_of_block(block)] == []


def test_blocks_of_every_page_are_found() -> None:
    """A search that finds nothing would pass."""
    counts = Counter(block.language for page in pages() for block in blocks(page))
    assert counts["sh"] + counts["console"] > 60
    assert counts["python"] > 40
    assert {"json", "yaml", "toml", "csv", "text"} <= set(counts)
    assert {place_of(page) for page in pages()} >= {"README.md", "docs/python.md", "dataset_cards/siim-acr.md"}


@pytest.mark.parametrize(
    ("language", "text", "problem"),
    [
        ("sh", "make test    # all; make test PYTEST_ARGS=tests/test_masks.py make lint", None),
        ("sh", "make test PYTEST_ARGS=tests/test_masks.py make lint    # ruff", "no targets ['make']"),
        ("sh", "docs built as a site, with every link checked", "'docs' is not a program that pages may start"),
        ("sh", "reveal-bench score mine.jsonl", "missing ['folder']"),
        ("sh", "reveal-bench score mine.jsonl data --interval percentile --luck 3", "--luck"),
        ("sh", "reveal-bench baseline luck data --out x", "name: 'luck' must be one of chance, location-prior, human"),
        ("console", "$ reveal-bench metrics\nany output", None),
        ("sh", "reveal-bench score 'mine.jsonl data", "unexpected EOF"),
        ("python", "import reveal_bench as rb\nrb.score('a', 'b', resamples=3)", "unexpected keyword argument"),
        ("python", "from reveal_bench.masks import encode_masks", "reveal_bench.masks has no encode_masks"),
        ("python", "import reveal_bench as rb\nrb.score('a', 'b').to_word()", "has no to_word"),
        ("python", "x = rb.load('a')\nx.cases, x.questions", "x has no questions"),
        ("python", "x = rb.load('a'", "was never closed"),
        ("csv", "a,b\n1,2,3", "rows of [2, 3] cells"),
        ("bibtex", "@misc{name,\n  title = {A\n}", "no entry"),
        ("text", "reveal-bench metrics", "reveal-bench metrics"),
        ("", "anything", "must say what it is in"),
    ],
)
def test_problem_of_a_block_is_found(language: str, text: str, problem: str | None) -> None:
    problems = "; ".join(problems_of_block(Block(ROOT / "page.md", 1, language, text)))
    assert (problem or "") in problems
    assert bool(problems) == (problem is not None)


@pytest.fixture
def desk(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The working folder is one with the files that examples name; returns what else they name."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/chexlocalize").symlink_to(world.folder)
    Path("reveal_bench").symlink_to(ROOT / "reveal_bench")
    boxes = [
        {"image_id": image, "finding": finding, "x1": 0.1, "y1": 0.2, "x2": 0.5, "y2": 0.6}
        for image, finding in reveal_bench.load(world.folder).manifest.asked_pairs()
    ]
    for name, cell in (("predictions.jsonl", "C4"), ("theirs.jsonl", "D4")):
        lines = ({"image_id": row["image_id"], "finding": row["finding"], "cell": cell} for row in boxes)
        Path(name).write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    records = [study(tmp_path / "pictures", i, ("Pleural effusion",)) for i in range(3)]
    build_folder({"test": records}, tmp_path / "studies", BENCHMARKS["reveal-cxr"])
    studies = reveal_bench.load(tmp_path / "studies")
    labels = ["Effusion" if label == "Pleural effusion" else label for label in studies.manifest.labels]
    return {
        "boxes_frame": pd.DataFrame(boxes),
        "studies": studies,
        "study_ids": list(studies.manifest.studies),
        "model": SimpleNamespace(pathologies=labels),
        "probabilities": np.full((3, len(labels)), 0.25),
    }


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_python_of_the_first_pages_runs(page: str, desk: dict[str, Any]) -> None:
    """Block after block, as a reader would; other pages' examples have tests of their own, or need a model."""
    pytest.importorskip("evaluate", reason="the extra [evaluate] is not installed: see README")
    for block in blocks(ROOT / page, "python"):
        exec(compile(block.text, str(block), "exec"), desk)
    assert {row["metric"] for row in desk["result"].records} == {"point_hit", "point_chance", "grid_hit", "grid_chance"}


# What sentences and tables name in backticks

SOURCES = r"py|toml|ipynb|md|c|h|js|css|svg|html"
PLACES = ("", "reveal_bench", "leaderboard/reveal_leaderboard", "leaderboard", "docs", "tests", "submissions")
ELSEWHERE = {"NAME.py", "eval.py"}
"""Files that are not of this repository: of a dataset repository, and of CheXlocalize."""


def problem_of_path(code: str, page: Path) -> str | None:
    """Return the problem of `folder/file.py`, `file.py::name` or `folder/<kind>/file.py`."""
    name, _, defined = code.partition("::")
    for written in [name.replace("<kind>", kind) for kind in KINDS] if "<kind>" in name else [name]:
        paths = [path for place in (page.parent, *(ROOT / part for part in PLACES)) for path in place.glob(written)]
        if not paths:
            return f"no file {written}"
        if defined and defined not in set().union(*map(names_defined, paths)):
            return f"{written} defines no {defined}"
    return None


def is_output(code: str) -> bool:
    """Return True for a page or figure that commands write, which no folder of this repository has."""
    folder = code.partition("/")[0] if "/" in code else None
    return code.endswith((".html", ".svg")) and not any((ROOT / place / str(folder)).is_dir() for place in PLACES)


def problem_of_code(code: str, page: Path) -> str | None:
    """Return the problem of code in a sentence: a path, a command, an option or an expression of the project."""
    if re.fullmatch(rf"[\w<>*./-]+\.(?:{SOURCES})(?:::[\w.]+)?", code) and code not in ELSEWHERE:
        return None if is_output(code) else problem_of_path(code, page)
    if page.name in OF_THE_CODE and re.fullmatch(r"(?:[\w<>-]+/)+", code):
        return problem_of_path(code, page)
    if re.match(r"(?:[A-Z_]+=\S+ )*(?:reveal-(?:bench|leaderboard)|make|python) ", code):
        return next(filter(None, (problem_of(words, is_whole=False) for words in words_of(code))), None)
    if re.fullmatch(r"--[\w-]+", code):
        return None if code in OPTIONS else f"no command has the option {code}"
    words = code.split()
    homes = [command_of(name, words)[0] for name, program in PROGRAMS.items() if words[0] in program.commands]
    if " --" in code and homes:  # short for a whole command: `score --readers`
        unknown = {word for word in words if word.startswith("--")}.difference(*map(options_of, homes))
        return f"no options {sorted(unknown)}" if unknown else None
    if re.match(r"(?:rb|reveal_bench|reveal_leaderboard)\.", code):
        return "; ".join(problems_of_example(code, rb=reveal_bench, reveal_bench=reveal_bench)) or None
    return None


OPTIONS = {name for program in PROGRAMS.values() for one in commands_below(program) for name in options_of(one)}
OF_THE_CODE = {"architecture.md", "development.md"}
"""Pages on which a folder in backticks is one of this repository."""


TODAY = [page for page in pages() if page.name != "CHANGELOG.md"]  # which also has removed names


@pytest.mark.parametrize("page", TODAY, ids=place_of)
def test_what_pages_name_in_backticks_exists(page: Path) -> None:
    problems = {code: problem_of_code(code, page) for code in code_in_text(page)}
    assert {code: problem for code, problem in problems.items() if problem} == {}


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("kinds/<kind>/lint.py", None),
        ("kinds/<kind>/fusion.py", "no file kinds/localization/fusion.py"),
        ("store/blobs.py::Blobs", None),
        ("evaluation/score.py::score_folder", "evaluation/score.py defines no score_folder"),
        ("reveal-bench score --format csv", None),
        ("reveal-bench scores", "no command scores"),
        ("score --readers", None),
        ("score --reader", "no options ['--reader']"),
        ("--resample", "no command has the option --resample"),
        ("rb.score(a, b, name='x')", None),
        ("rb.grade(a)", "rb has no grade"),
        ("reveal_bench.metrics.ordinal", None),
    ],
)
def test_problem_in_backticks_is_found(code: str, problem: str | None) -> None:
    assert problem_of_code(code, ROOT / "docs" / "page.md") == problem


@pytest.mark.parametrize("page", pages(), ids=place_of)
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    """Check links in the repository; `make docs` checks the links of the site."""
    for link in links(page):
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", target):
            continue
        place = page.parent / target if target else page
        assert place.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(place), f"{page.name}: {link}"


@pytest.mark.parametrize("page", pages(), ids=place_of)
def test_an_empty_line_ends_every_table(page: Path) -> None:
    """Else the site makes rows of what follows, though GitHub does not."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    assert re.findall(r"(?m)^ *\|.*\|\n(?! *\||\n|\Z).+", text) == []


def test_links_of_the_front_page_are_found() -> None:
    front = links(ROOT / "README.md")
    assert all(f"docs/{name}.md" in front for name in ("real_data", "commands", "operating"))
    assert "tests" in anchors(ROOT / "README.md")
    assert "reveal-cxr-and-sets-made-like-it" in anchors(ROOT / "docs" / "sources.md")  # links in sources.md


def test_every_page_of_the_docs_is_on_the_site() -> None:
    site = yaml.safe_load((ROOT / ".ci" / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = re.findall(r"'([\w.]+\.(?:md|ipynb))'", str(site["nav"]))
    assert {path.name for path in (ROOT / "docs").iterdir() if path.suffix in (".md", ".ipynb")} <= set(listed)


def test_the_page_about_speed_says_what_was_measured() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results.json").read_text(encoding="utf-8"))["results"]
    ratios = [row["ratio"] for row in measured if "ratio" in row]
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    stated = re.findall(r"(?m)^\| .* \| ([\d.]+)[^|]*\|$", page)
    assert len(stated) == 17
    for text in stated:
        half_a_digit = 0.05 if "." in text else 0.5
        assert min(abs(ratio - float(text)) for ratio in ratios) <= half_a_digit + 1e-9, text


def test_versions_that_pages_name_are_those_of_the_tests() -> None:
    """docs/publishing.md says which clients it was tested with."""
    pinned = dict(
        re.findall(r"(?m)^([\w-]+)==(\d+\.\d+)", (ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8"))
    )
    page = (ROOT / "docs" / "publishing.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"`(huggingface_hub|datasets)` (\d+\.\d+)", page))
    assert stated == {name: pinned[name.replace("_", "-")] for name in ("huggingface_hub", "datasets")}
