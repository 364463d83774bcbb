"""The command line: every command on real input, with its errors, help and files."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from reveal_bench.api import rank
from reveal_bench.cli import app, build, main
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import LocalizationPrediction, read_localization
from tests.conftest import ROOT, World, in_child

COMMANDS = sorted(c.name or c.callback.__name__ for c in app.registered_commands if c.callback)


def run(*words: object, expect: int = 0, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run ``reveal-bench`` as a user would."""
    command = [sys.executable, "-c", "from reveal_bench.cli import main; main()", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == expect, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def call(*words: object, expect: int = 0, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, where everything is already imported, for tests of many commands."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    before = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.delenv("COLUMNS", raising=False)
        patch.setattr(sys, "argv", ["reveal-bench", *map(str, words)])
        patch.setattr(build, "cores", lambda workers: workers or 1)  # each one more imports everything again
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            signal.signal(signal.SIGTERM, before)
    done = subprocess.CompletedProcess(list(map(str, words)), code, out.getvalue(), err.getvalue())
    assert done.returncode == expect, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_is_listed(command: str) -> None:
    text = call(command, "--help").stdout
    assert re.search(r"Usage: .* " + command, text)
    assert f"reveal-bench {command}" in (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", [[], ["curate"]])
def test_command_summaries_are_not_cut(words: list[str]) -> None:
    assert "..." not in call(*words, "--help").stdout.partition("Commands:")[2].replace("reveal_bench/...", "")


@pytest.mark.parametrize("page", ["README.md", "docs/commands.md", "docs/real_data.md", "docs/speed.md"])
def test_first_help_pages_have_no_gap(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not re.findall(r"(?m)^[A-Z]{6,}$|TODO|TRANSCRIPT|BENCHTABLE", text)


def test_commands_of_first_versions_still_work() -> None:
    names = """
        agreement attach baseline build compare confidence convert curves diff draft-ratings export export-lmms
        import-inspect import-lmms import-replies inspect lint metrics misses operating-points phantom plan-readers
        publish rank readers readings receipt report run saliency score score-maps shapes status submit tune validate
        verify-receipt view withdraw
    """
    assert names.split() == COMMANDS


@pytest.mark.parametrize("command", ["score", "lint", "--help"])
def test_frequent_commands_load_no_table_library(command: str, world: World, tmp_path: Path) -> None:
    file = tmp_path / "masks.jsonl"
    annotations = [(r.image_id, a) for r in read_localization(world.folder, "released") for a in r.annotations]
    predictions = [
        LocalizationPrediction(image_id, a.finding, mask=a.rle)
        for image_id, a in annotations
        if a.reader == "ground_truth" and a.area_px
    ]
    file.write_text(predictions_to_jsonl(predictions))
    words = [command] if command == "--help" else [command, str(file), str(world.folder), "--split", "released"]
    heavy = {"pandas", "pyarrow.dataset", "datasets", "matplotlib", "gradio", "scipy"}
    code = f"""
import sys
from reveal_bench.cli import main
try:
    main()
except SystemExit as end:
    print(end.code, sorted({heavy} & set(sys.modules)), "reveal_bench.masks.kernels" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == f"0 [] {command != '--help'}", done.stderr


def test_a_warning_is_one_line_without_source(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVEAL_KERNELS", "numpy")
    file = tmp_path / "predictions.jsonl"
    call("baseline", "chance", world.folder, "--split", "released", "--out", file)
    done = run("score", file, world.folder, "--split", "released")
    lines = [line for line in done.stderr.splitlines() if "kernels" in line.lower()]
    assert lines == ["warning: reveal-bench uses slow numpy loops (same results): REVEAL_KERNELS=numpy"]


def test_a_baseline_is_linted_and_scored(world: World, tmp_path: Path) -> None:
    file, rows = tmp_path / "prior.jsonl", tmp_path / "rows.parquet"
    assert "wrote" in call("baseline", "location-prior", world.folder, "--split", "released", "--out", file).stdout
    assert "0 errors" in call("lint", file, world.folder, "--split", "released").stdout
    text = call("score", file, world.folder, "--rows", rows).stdout
    assert "macro" in text
    assert "Hit rate" in text
    document = json.loads(call("score", file, world.folder, "--json").stdout)
    (macro,) = [e for e in document["estimates"] if e["metric"] == "point_hit" and e["finding"] == "macro"]
    assert f"{100 * macro['value']:.1f} ({100 * macro['low']:.1f} to {100 * macro['high']:.1f})" in text
    assert document["protocol"] == {
        "grid": 8,
        "asks": "present",
        "unit": "patient",
        "n_resamples": 1000,
        "seed": 0,
        "interval": "jackknife",
        "allow_missing": False,
    }
    bca = json.loads(call("score", file, world.folder, "--json", "--interval", "bca").stdout)["estimates"][0]
    assert "|i:bca|" in bca["signature"]
    assert "got 'bayes'" in call("score", file, world.folder, "--interval", "bayes", expect=1).stderr
    table = pq.read_table(rows)
    by_finding: dict[str, list[float]] = {}
    for row in table.to_pylist():
        by_finding.setdefault(row["finding"], []).append(row["point_hit"])
    means = [sum(hits) / len(hits) for hits in by_finding.values()]
    assert sum(means) / len(means) == pytest.approx(macro["value"])


def test_chance_on_the_holdout_needs_the_private_folder_to_score(world: World, tmp_path: Path) -> None:
    file = tmp_path / "chance.jsonl"
    call("baseline", "chance", world.folder, "--split", "holdout", "--out", file)
    call("lint", file, world.folder, "--split", "holdout")
    refusal = call("score", file, world.folder, "--split", "holdout", expect=1)
    assert "holds no references of split 'holdout': they are private" in refusal.stderr
    assert "macro" in call("score", file, world.vault, "--split", "holdout").stdout


def test_lint_shows_all_problems_and_score_refuses_with_the_same(world: World, tmp_path: Path) -> None:
    file = tmp_path / "chance.jsonl"
    call("baseline", "chance", world.folder, "--split", "holdout", "--out", file)
    lines = file.read_text().splitlines()
    lines[1] = lines[1].replace("patient", "pateint")
    lines[4] = re.sub(r'"cell": ?"[A-H][1-8]"', '"cell": "Z9"', lines[4])
    file.write_text("\n".join(lines) + "\n")
    printed = call("lint", file, world.folder, "--split", "holdout", expect=1).stdout
    assert "chance.jsonl:2: error" in printed
    assert "chance.jsonl:5: error" in printed
    assert "Z9" in printed
    report = json.loads(call("lint", file, world.folder, "--split", "holdout", "--json", expect=1).stdout)
    assert {2, 5} <= {problem["line"] for problem in report["problems"]}
    refused = call("score", file, world.vault, "--split", "holdout", expect=1)
    assert refused.stderr.startswith("error: chance.jsonl was not scored\n")
    assert refused.stderr.count(" errors, ") == 1
    assert "chance.jsonl:5: error" in refused.stderr


def test_two_baselines_are_compared_and_ranked(world: World, tmp_path: Path) -> None:
    systems = tmp_path / "systems"
    (systems / "guess").mkdir(parents=True)
    prior, chance = systems / "prior-1.0.jsonl", systems / "guess" / "predictions.jsonl"
    call("baseline", "location-prior", world.folder, "--split", "released", "--out", prior)
    call("baseline", "chance", world.folder, "--split", "released", "--out", chance)
    (chance.parent / "submission.json").write_text("{}")  # metadata and other files are ignored
    (systems / "README.md").write_text("notes")

    options = ("--metric", "grid_hit", "--resamples", 200, "--seed", 3)
    text = call("compare", prior, chance, world.folder, *options).stdout
    document = json.loads(call("compare", prior, chance, world.folder, *options, "--json").stdout)
    assert (document["a"], document["b"], document["value"]) == ("prior-1.0.jsonl", "predictions.jsonl", "difference")
    assert (document["protocol"]["n_resamples"], document["protocol"]["seed"]) == (200, 3)
    macro = document["comparisons"][0]
    assert macro["value"] == macro["a"] - macro["b"]
    assert re.search(rf"macro .* {100 * macro['a']:.1f} +{100 * macro['b']:.1f} +{100 * macro['value']:.1f} ", text)
    for file, value in ((prior, macro["a"]), (chance, macro["b"])):
        scored = json.loads(call("score", file, world.folder, "--json").stdout)
        (same,) = [e for e in scored["estimates"] if (e["metric"], e["finding"]) == ("grid_hit", "macro")]
        assert same["value"] == value
    relative = json.loads(call("compare", prior, chance, world.folder, *options, "--relative", "--json").stdout)
    assert relative["value"] == "relative_decrease"
    assert relative["comparisons"][0]["value"] == pytest.approx((macro["b"] - macro["a"]) / macro["b"])
    every = call("compare", prior, chance, world.folder).stdout
    assert "Hit rate" in every
    assert "not compared, because predictions.jsonl lacks them: mIoU; mIoU, all" in every

    ranking = json.loads(call("rank", systems, world.folder, *options, "--json").stdout)
    assert [(s["name"], s["rank"], s["file"]) for s in ranking["systems"]] == [
        ("prior-1.0", 1, "prior-1.0.jsonl"),
        ("guess", 2, "guess/predictions.jsonl"),
    ]
    assert [s["value"] for s in ranking["systems"]] == [macro["a"], macro["b"]]
    assert ranking["systems"][1]["tier"] == 2
    assert re.search(r"guess +2 +2 to 2 +2 +", call("rank", systems, world.folder, *options).stdout)
    alone = call("rank", systems, world.folder, "--metric", "mask_iou")
    assert "guess is not ranked: 'mask_iou' does not apply to it" in alone.stdout
    in_python = rank(systems, world.folder, metric="mask_iou", n_resamples=400)
    assert "guess is not ranked: 'mask_iou' does not apply to it" in in_python.to_markdown()
    assert "1 system on" in alone.stdout

    (systems / "guess.csv").write_text("")
    twice = call("rank", systems, world.folder, expect=1).stderr
    assert "must contain one prediction file for 'guess'" in twice
    (chance.parent / "more.jsonl.gz").write_text("")
    assert (
        "must contain one prediction file, got more.jsonl.gz, predictions"
        in call("rank", systems, world.folder, expect=1).stderr
    )


def test_output_is_replaced_completely_or_not_at_all(world: World, tmp_path: Path) -> None:
    import resource

    def fails_for_want_of_room(words: tuple[object, ...]) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        call(*words, kept, expect=1)

    good, kept = tmp_path / "good.jsonl", tmp_path / "kept"
    call("baseline", "location-prior", world.folder, "--split", "released", "--out", good)
    for words in (
        ("baseline", "location-prior", world.folder, "--split", "released", "--out"),
        ("score", good, world.folder, "--rows"),
    ):
        kept.write_text("before")
        assert in_child(partial(fails_for_want_of_room, words)) == 0
        assert kept.read_text() == "before"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["good.jsonl", "kept"]
    refused = call("baseline", "chance", world.folder, "--out", "/dev/null", expect=1)
    assert "/dev/null must be a file, or not exist yet" in refused.stderr


def test_pipe_is_read_like_a_file(world: World, tmp_path: Path) -> None:
    file = tmp_path / "chance.jsonl"
    call("baseline", "chance", world.folder, "--out", file)
    code = "from reveal_bench.cli import main; main()"
    command = [sys.executable, "-c", code, "lint", "/dev/stdin", str(world.folder)]
    done = subprocess.run(command, input=file.read_bytes(), capture_output=True, check=False)
    assert b"0 errors" in done.stdout, done.stderr


def test_validate_finds_a_changed_file(world: World, tmp_path: Path) -> None:
    import shutil

    assert "no problems" in call("validate", world.folder, "--holdout", world.vault).stdout
    copy = tmp_path / "copy"
    shutil.copytree(world.folder, copy)
    (copy / "README.md").write_text((copy / "README.md").read_text() + "changed\n")
    assert "README.md" in call("validate", copy, expect=1).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("score", "{tmp}/films/a", "{tmp}"), "is not a dataset folder: it has no manifest/benchmark.json"),
        (("lint", "{tmp}/films/a", "{world}", "--split", "test"), r"\(released, holdout\), got 'test'"),
        (("lint", "{tmp}/films/a", "{tmp}/broken"), "benchmark.json: must hold one JSON object, got list"),
        (("build", "{tmp}/broken", "--out", "{tmp}/out"), "must be a download, not a dataset folder, which"),
        (("inspect", "{world}"), "must be a download, not a dataset folder"),
        (("build", "{tmp}", "--out", "{tmp}/out", "--source", "x"), "`--source` must be one of .*, got 'x'"),
        (
            ("phantom", "{tmp}/new", "--style", "chexpert-labels", "--long-side", "64"),
            "--long-side must be left out for --style chexpert-labels, which has no images, got 64",
        ),
        (("rank", "{tmp}", "{world}"), r"must contain prediction files \(.*\), got none"),
        (("rank", "{tmp}/none", "{world}"), "none does not exist"),
        (("readers", "{tmp}/broken/manifest/gaps.csv"), "TABLE must have a `patient` in every row, got none in row 1"),
    ],
)
def test_user_mistakes_are_one_message(words: tuple[str, ...], message: str, world: World, tmp_path: Path) -> None:
    (tmp_path / "broken" / "manifest").mkdir(parents=True)
    (tmp_path / "broken" / "manifest" / "benchmark.json").write_text("[]")
    (tmp_path / "films").mkdir()
    (tmp_path / "broken" / "manifest" / "gaps.csv").write_text("reader,case,score,truth,patient\nA,c,1,1,\nA,d,2,0,p\n")
    (tmp_path / "films" / "a").write_bytes(bytes(128) + b"DICM")
    done = call(*(word.format(tmp=tmp_path, world=world.folder) for word in words), expect=1)
    assert re.search(message, done.stderr), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_unreachable_leaderboard(tmp_path: Path) -> None:
    (tmp_path / "submission.json").write_text("{}")
    (tmp_path / "p.jsonl").write_text("{}\n")
    done = call("submit", tmp_path / "p.jsonl", "--benchmark", "b", "--url", "http://127.0.0.1:9", expect=1)
    assert "no leaderboard answers at http://127.0.0.1:9" in done.stderr


def test_phantom_to_scores(tmp_path: Path) -> None:
    source, folder, vault = tmp_path / "download", tmp_path / "data", tmp_path / "vault"
    call("phantom", source, "--images", 24, "--val-images", 6, "--long-side", 300)
    assert "chexlocalize" in call("inspect", source).stdout
    built = call("build", source, "--out", folder, "--holdout", vault, "--seed", 1, "--workers", 1).stdout
    assert "holdout" in built
    call("validate", folder, "--holdout", vault)
    call("baseline", "location-prior", folder, "--split", "validation", "--out", tmp_path / "prior.jsonl")
    call("score", tmp_path / "prior.jsonl", folder, "--split", "validation")


def test_output_is_quiet_and_plain_when_piped(world: World, tmp_path: Path) -> None:
    done = run("baseline", "chance", world.folder, "--out", tmp_path / "c.jsonl")
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_training_split_has_its_own_option(world: World, tmp_path: Path) -> None:
    words = ["baseline", "location-prior", world.folder, "--fit-split", "nowhere", "--out", tmp_path / "prior.jsonl"]
    assert "--fit-split must be one of the splits of" in call(*words, expect=1).stderr
