"""Progress of long work without a terminal, and tables on narrow terminals."""

from __future__ import annotations

import math
import re
import shlex
from functools import partial
from pathlib import Path

import pytest

from reveal_bench.api.comparison_tables import unshared_findings
from reveal_bench.api.result_table import TableResult
from reveal_bench.arguments import ArgumentError
from reveal_bench.cli import _message, _with_inputs, output
from reveal_bench.cli import progress as module
from reveal_bench.cli.progress import plain_progress, progress
from reveal_bench.evaluation.baselines import chance_baseline
from reveal_bench.evaluation.compare import Comparison
from reveal_bench.evaluation.margin import Margin, Verdict
from reveal_bench.kinds import KINDS
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.intervals import Estimate
from reveal_bench.printed_tables import PrintedTable
from tests.cli.test_score import call
from tests.conftest import World


def test_an_error_names_the_option_of_the_replicates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["reveal-bench", "rank"])
    error = ArgumentError("n_resamples", "must be at least 400", 40)
    assert _message(error) == "--resamples must be at least 400, got 40"
    assert _message(FileNotFoundError(2, "No such file or directory", "none/made.jsonl")) == "none does not exist"


def test_advice_to_convert_has_the_path_without_the_name_of_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "b=1.csv").touch()
    for word, path in ((f"a={tmp_path}/a.csv", "a.csv"), (f"{tmp_path}/b=1.csv", "b=1.csv")):
        monkeypatch.setattr("sys.argv", ["reveal-bench", "rank", word, "FOLDER"])
        assert _with_inputs("--file FILE", path) == f"--file {shlex.join([f'{tmp_path}/{path}'])}"


def test_a_log_gets_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 4.0, 12.0, 13.0, 30.0])
    update = plain_progress("building", every=10, clock=lambda: next(seconds))
    for done in (100, 300, 310):
        update("train", done, 1_000)
    update("building", 7, None, 2)
    captured = capsys.readouterr()
    assert captured.err == "building train: 300 of 1,000 (30%) after 12 s\nbuilding: 7, 2 failed after 30 s\n"
    assert not captured.out


def test_narrow_terminal_shows_whole_differences(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = Verdict("not equivalent", 0.5, "")
    comparisons = [
        Comparison(
            "f1",
            name,
            0.5,
            0.25,
            Estimate(0.25, -0.5, 1.0),
            0.5,
            60,
            60,
            0,
            "",
            p_adjusted=0.5,
            low_adjusted=-0.5,
            high_adjusted=1.0,
            margin=Margin(0.05),
            verdict=verdict,
        )
        for name in ("macro", "Enlarged Cardiomediastinum")
    ]
    lines_by_width = {}
    for width in (80, 200):
        monkeypatch.setattr(output, "_width", lambda *, wide=False, own=width: 10_000 if wide else own)
        output.print_comparisons(comparisons, "caption", what="A - B")
        lines_by_width[width] = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert " ".join(lines_by_width[80][1]) == "finding n A - B 95% interval p verdict"
    assert " ".join(lines_by_width[80][-3]) == "Enlarged 60 25.0 -50.0 to 100.0 0.500 not equivalent"
    assert " ".join(lines_by_width[80][-2]) == "Cardiomediastinum"
    assert " ".join(lines_by_width[80][-1]) == "--wide also shows A, B"
    assert " ".join(lines_by_width[200][-1]).startswith("Enlarged Cardiomediastinum 60 50.0 25.0 25.0 -50.0 to 100.0")


def test_findings_that_only_one_system_scores_are_named() -> None:
    nan = math.nan
    pairs = {"macro": (0.2, 0.3), "Edema": (0.1, nan), "Nodule": (0.2, 0.3), "Mass": (nan, nan)}
    comparisons = [
        Comparison("precision", name, a, b, Estimate(a - b, nan, nan), nan, 1, 1, 0, "")
        for name, (a, b) in pairs.items()
    ]
    sentence = "Precision: both macros are over the 1 finding with a score of A and B; B has none for Edema"
    assert unshared_findings(comparisons) == [sentence]


def test_long_comparison_fits_on_a_screen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Eighteen metrics of fourteen findings, two of them equal to another, have 270 lines with --wide."""
    names = ("macro", *(f"Finding {i}" for i in range(13)), "Enlarged Cardiomediastinum")
    numbers = {metric: min(i, 15) / 20 for i, metric in enumerate(list(METRICS)[:18])}
    comparisons = [
        Comparison(metric, name, number, 0.9, Estimate(number - 0.9, -0.95, 0.9), 0.5, 60, 60, 0, "", p_adjusted=0.5,
                   low_adjusted=-0.95, high_adjusted=0.9)
        for metric, number in numbers.items() for name in names
    ]  # fmt: skip
    monkeypatch.setattr(output, "_width", lambda *, wide=False: 10_000 if wide else 80)
    output.print_comparisons(comparisons, "caption", what="A - B")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["finding", "n", "A", "B", "A", "-", "B", "95%", "interval", "p"]
    text = "\n".join(lines)
    assert all(METRICS[metric].title.split()[0] in text for metric in list(METRICS)[:16])
    assert lines[-1].startswith("--wide also shows ")
    output.print_comparisons(comparisons, "caption", what="A - B", wide=True)
    assert len(capsys.readouterr().out.splitlines()) == 2 + 18 * 16


class Points(TableResult):
    """A table of rates, and of the PPV that an option asked for."""

    caption = "caption"
    records = ()
    requested = ("PPV there",)

    def printed_rows(self) -> list[dict[str, str]]:
        """Return a long heading, and a row."""
        row = {"finding": "Edema", "recall": "90.0 (80.0 to 95.0)", "PPV": "50.0", "PPV there": "10.0 (5.0 to 20.0)"}
        return [dict.fromkeys(row, "") | {"finding": "of all findings together, or of any other"}, row]


def test_narrow_terminal_keeps_the_columns_that_an_option_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_width", lambda *, wide=False: 50)
    output.print_shown(Points(), wide=False)
    assert capsys.readouterr().out.splitlines() == [
        "caption",
        "finding               recall           PPV there",
        "of all findings together, or of any other",
        "Edema    90.0 (80.0 to 95.0)  10.0 (5.0 to 20.0)",
        "--wide also shows PPV",
    ]
    monkeypatch.setattr(output, "_width", lambda *, wide=False: 30)
    output.print_shown(Points(), wide=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["finding", "PPV", "there"]
    assert lines[2:4] == ["of all findings together, or", "of any other"]
    assert lines[-1] == "--wide also shows recall, PPV"


def test_counts_of_a_finding_are_of_all_cases_and_those_of_macros_of_each_metric(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {("f1", "macro"): (1, 1), ("f1", "Edema"): (80, 0), ("f1", "Mass"): (0, 80),
              ("specificity", "macro"): (2, 0), ("specificity", "Edema"): (80, 0),
              ("specificity", "Mass"): (80, 0)}  # fmt: skip
    estimates = [
        Estimate(1.0 if n else math.nan, n=n, n_undefined=n_undefined, metric=metric, finding=finding)
        for (metric, finding), (n, n_undefined) in scores.items()
    ]
    output.print_scores(estimates, "in {}".format, positives={"Edema": 7, "Mass": 0})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[1:5] == [
        "finding n F1 Specificity",
        "macro 1 finding 100.0 100.0 n=2",
        "Edema 7 of 80 100.0 100.0",
        "Mass 0 of 80 - 100.0",
    ]
    # Without positives, n are those of each score; the footer has plain names
    monkeypatch.setattr(output, "_width", lambda *, wide=False: 30)
    loss = Estimate(0.5, n=1, metric="log_loss", finding="macro")
    output.print_scores([*estimates, loss], "in {}".format)
    text = capsys.readouterr().out
    assert text.startswith("in percent\n")  # log loss, which is in nats, does not fit
    assert "--wide also shows Specificity, Log loss\n" in text


def test_a_table_keeps_its_form_whatever_the_names() -> None:
    table = PrintedTable(["name", "n"], [["a\nb\x1b[31m\u202e", "1"], ["[c]", "2"], ["*d", "3"]])
    assert [line.split() for line in table.to_lines()][1:] == [["a?b?[31m?", "1"], ["[c]", "2"], ["*d", "3"]]
    assert table.to_latex().splitlines()[5:7] == [r"{}[c] & 2 \\", r"{}*d & 3 \\"]
    narrow = PrintedTable(["ab"] * 9, [["cd"] * 9])
    assert narrow.to_lines(20) == narrow.to_lines()


def test_short_work_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading") as update:
        update("reading", 1, 2)
        update("reading", 2, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "kernel", [{"JPY_PARENT_PID": "7"}, {"PAGER": "cat", "GIT_PAGER": "cat", "CLICOLOR": "1", "FORCE_COLOR": "1"}]
)
def test_notebook_gets_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kernel: dict[str, str]
) -> None:
    """In a notebook, commands after ``!`` have an imitated terminal: a bar of two minutes was 38,000 characters."""
    for name, value in kernel.items():
        monkeypatch.setenv(name, value)
    seconds = iter([0.0, *(float(i) for i in range(1, 121))])
    monkeypatch.setattr(module, "plain_progress", partial(plain_progress, clock=lambda: next(seconds)))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress("building") as update:
        for done in range(1, 121):
            update("test", done, 120)
    texts = capsys.readouterr().err.split("\r")
    # after 10 s, then 15, 22.5, 33.75 and 50.6 s later
    assert [text.split(" after ")[1].strip() for text in texts[1:]] == ["10 s", "25 s", "48 s", "82 s"]
    assert texts[0] == ""
    assert "".join(texts).count("\n") == 1


def test_columns_set_the_width_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output._width() == 200
    monkeypatch.setenv("COLUMNS", "80")
    assert output._width() == 80


LONG = "A very long name of a system that its team has chosen as 60"


@pytest.mark.parametrize(
    "words",
    [
        "lint {a} {world}", "score {a} {world}", "score {a} {world} --by view", "compare {a} {b} {world}",
        "compare {a} {b} {world} --margin 0.1", "rank {tmp} {world}", "shapes {world}", "shapes {world} --model {a}",
        "metrics", "agreement {table}", "readers {table}", "readers {table} --fixed-readers",
    ],
)  # fmt: skip
def test_lines_fit_a_narrow_terminal(words: str, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With names of 60 characters, and the longest names of findings."""
    systems = tmp_path / "systems"
    systems.mkdir()
    files = {name: systems / f"{LONG} {name}.jsonl" for name in "ab"}
    for seed, file in enumerate(files.values()):
        manifest = KINDS["localization"].questions.read_manifest(world.folder, "released")
        predictions = chance_baseline(manifest, seed=seed)
        file.write_text(KINDS["localization"].predictions.to_jsonl(predictions))
    modalities = "Radiologists without any assistance", "Radiologists with assistance of a system"
    rows = [f"{LONG} {reader},{case},{modality},{(case * 7 + reader * modalities.index(modality)) % 10},{case % 2}"
            for reader in range(3) for case in range(20) for modality in modalities]  # fmt: skip
    if words.startswith("agreement"):
        rows = [row for row in rows if modalities[0] in row]
    (tmp_path / "t.csv").write_text("\n".join(["reader,case,modality,score,truth", *rows]) + "\n")
    monkeypatch.setattr(output, "_terminal_width", lambda: 80)
    places = {"world": world.folder, "tmp": systems, "table": tmp_path / "t.csv", **files}
    done = call(*(word.format(**places) for word in words.split()))
    assert [line for line in re.sub(r"\x1b\[\d*m", "", done.stdout).splitlines() if len(line) > 80] == []
    assert done.stdout
