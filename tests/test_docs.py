"""Documents agree with the code: generated pages are what their generators write, code in READMEs runs."""

from __future__ import annotations

import doctest
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from reveal_leaderboard.cli import app as board_app
from typer.testing import CliRunner

from reveal_bench import api
from reveal_bench.cli import app as bench_app
from reveal_bench.cli.score import metrics
from reveal_bench.metrics import METRICS
from tests.conftest import ROOT

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
        assert f"`rb.{name}`" in written or f"### `{name}`" in written
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


@pytest.mark.parametrize("folder", MODULES, ids=lambda folder: folder.name)
def test_readme_code_of_evaluate_modules_runs(folder: Path) -> None:
    pytest.importorskip("evaluate", reason="the extra [evaluate] is not installed: see README")
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "```python\n>>> " in text
    failed, tried = doctest.testfile(str(folder / "README.md"), module_relative=False)
    assert (failed, tried > 2) == (0, True)


GUIDES = [ROOT / name for name in ("README.md", "submissions/README.md", "leaderboard/README.md")]
PAGES = [*GUIDES, *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = {"reveal-bench": typer.main.get_command(bench_app), "reveal-leaderboard": typer.main.get_command(board_app)}


MAKE_TARGETS = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))


def typed_commands(page: Path) -> list[str]:
    """Every command of ours on a page, in blocks and in the text, without what a shell or a comment adds."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"(?ms)^```(?:sh|console|)\n(.*?)^```", text)
    inline = re.findall(r"`((?:reveal-|make )[^`]+)`", re.sub(r"(?ms)^```.*?^```", "", text))
    lines = "\n".join([*blocks, *(" ".join(code.split()) for code in inline)]).replace("\\\n", " ").splitlines()
    ours = r"(?:\$ )?(?:[A-Z_]+=\S+ )*((?:reveal-(?:bench|leaderboard)|make) .*)"
    found = (re.match(ours, line) for line in lines)
    return [re.split(r"\s+#|\s*[|>&;](?:\s|$)", match[1])[0] for match in found if match]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_commands_on_pages_exist_with_their_options(page: Path) -> None:
    for line in typed_commands(page):
        program, *words = line.split()
        if program == "make":
            assert {word for word in words if "=" not in word} <= MAKE_TARGETS, f"{page.name}: {line}"
            continue
        command: Any = PROGRAMS[program]
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {"--help"}
        assert not hasattr(command, "commands") or not words or words[0] in known | {"..."}, line
        options = {word.strip("[]").split("=")[0] for word in words if word.lstrip("[").startswith("--")}
        assert options <= known | {"--"}, f"{page.name}: {line}: {sorted(options - known)}"


def test_commands_of_pages_are_found() -> None:
    assert sum(len(typed_commands(page)) for page in PAGES) > 150
    assert "reveal-bench lint   predictions.jsonl data/chexlocalize --split released" in typed_commands(
        ROOT / "docs" / "commands.md"
    )
    assert {"make demo", "make soak"} <= set(typed_commands(ROOT / "README.md"))  # in a block, and in the text


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page ends in, as GitHub and the site both make it."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_of_pages_lead_somewhere(page: Path) -> None:
    """In the repository; `make docs` checks those of the site."""
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]+`", "", page.read_text(encoding="utf-8"))
    for target, anchor in re.findall(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)", text):
        place = page.parent / target if target else page
        assert place.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(place), f"{page.name}: {target}#{anchor}"


def test_links_of_the_front_page_are_found() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"](docs/{name}" in text for name in ("real_data.md", "commands.md", "operating.md"))
    assert "tests" in anchors(ROOT / "README.md")
    assert "reveal-cxr-and-sets-made-like-it" in anchors(ROOT / "docs" / "sources.md")  # links in sources.md


def test_every_page_of_the_docs_is_on_the_site() -> None:
    site = yaml.safe_load((ROOT / ".ci" / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = re.findall(r"'([\w.]+\.(?:md|ipynb))'", str(site["nav"]))
    assert {path.name for path in (ROOT / "docs").iterdir() if path.suffix in (".md", ".ipynb")} <= set(listed)
