"""``reveal-bench curate`` on synthetic reports: every step, repeated steps, mistakes and a refresh."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from reveal_bench.curation.tables import Assignment, Placed, Sampled, read_table
from reveal_bench.phantom.curation import cast, write_votes
from tests.cli.test_score import call

N = 60
STRATA = "1:15,2:10,3:4"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("curate") / "pool"
    call("phantom", root, "--style", "reveal-pool", "--images", N, "--no-pictures")
    return root


def curated(pool: Path, folder: Path, *, seed: int = 3) -> list[str]:
    """Run every step up to the split; return the output of each."""
    printed = [call("curate", "extract", folder, "--reports", pool / "reports.csv", "--seed", seed).stdout]
    printed += [call("curate", "sample", folder, "--strata", STRATA, "--fill").stdout]
    printed += [call("curate", "assign", folder, "--readers", pool / "readers.csv").stdout]
    readings = [(one.study_id, one.reader) for one in read_table(folder / "assignments.parquet", Assignment)]
    suggested = {one.study_id: one.labels for one in read_table(folder / "sample.parquet", Sampled)}
    lines = (pool / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    truth = {one["study_uid"]: one["labels"] for one in map(json.loads, lines)}
    votes = folder.parent / f"{folder.name}-votes.csv"
    write_votes(votes, cast(readings, suggested, truth, seed))
    printed += [call("curate", "import-votes", folder, "--votes", votes).stdout]
    printed += [call("curate", "consensus", folder, "--resamples", 50).stdout]
    printed += [call("curate", "select", folder, "--target", 15).stdout]
    printed += [call("curate", "split", folder, "--facts", pool / "facts.csv", "--best-of", 5).stdout]
    return printed


@pytest.fixture(scope="module")
def folder(pool: Path) -> Path:
    curated(pool, pool.parent / "v1")
    return pool.parent / "v1"


def test_every_step_reports_its_result_and_progress(pool: Path, folder: Path) -> None:
    printed = curated(pool, folder)  # a second time
    assert all("already done, with the same inputs and settings" in one for one in printed)
    assert f"studies {N}" in printed[0]
    assert "build it with: reveal-bench build IMAGES" in printed[-1]
    status = call("curate", "status", folder).stdout.splitlines()
    assert [line.split()[1] for line in status[1:]] == ["done"] * 7 + ["open"] * 2
    states = json.loads(call("curate", "status", folder, "--json").stdout)
    assert [state["step"] for state in states][:3] == ["extract", "sample", "assign"]


def test_same_commands_in_another_folder_write_same_bytes(pool: Path, folder: Path) -> None:
    again = pool.parent / "again"
    curated(pool, again)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert {"split.parquet", "curation.json", "benchmark/labels.csv"} < set(names)
    assert [name for name in names if (folder / name).read_bytes() != (again / name).read_bytes()] == []


@pytest.mark.usefixtures("undrawn")
def test_report_is_an_html_page(folder: Path, tmp_path: Path) -> None:
    printed = call("curate", "report", folder).stdout
    assert f"open {folder / 'report' / 'index.html'}" in printed
    assert "kappa" in (folder / "report" / "index.html").read_text(encoding="utf-8").lower()


def test_refresh_by_command(folder: Path, tmp_path: Path) -> None:
    first = read_table(folder / "split.parquet", Placed)[0]
    labels = "None" if first.labels != () else "COPD"
    with (tmp_path / "corrections.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("study", "labels", "why"), (first.study_id, labels, "a CT of the same day")])
    new = tmp_path / "v2"
    words = ("curate", "refresh", new, "--before", folder, "--corrections", tmp_path / "corrections.csv")
    assert "version 1.1.0" in call(*words).stdout
    assert "already done" in call(*words).stdout
    assert len(read_table(new / "split.parquet", Placed)) == len(read_table(folder / "split.parquet", Placed))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("extract",), "give one of `--reports` and `--suggestions`"),
        (("extract", "--reports", __file__, "--model", "m"), "`--model` needs `--endpoint`"),
        (("extract", "--reports", __file__, "--endpoint", "http://localhost:1/v1"), "need `--model`"),
        (("extract", "--suggestions", __file__, "--model", "m"), "need `--reports`"),
        (("extract", "--reports", __file__, "--report", "a", "--file", "b"), "give one of `--report` and `--file`"),
        (("extract", "--reports", __file__, "--seed", "7"), "`--seed` must be 0, as when"),
        (("sample", "--strata", "1:30;2:20"), "`--strata` must be like 1:300,2:300"),
        (("sample",), "extract must be done first"),
        (("split",), "select must be done first"),
    ],
    ids=[
        "no table",
        "no endpoint",
        "no model",
        "labels of a model",
        "two columns",
        "another seed",
        "strata",
        "too early",
        "far too early",
    ],
)
def test_errors_are_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    from reveal_bench.curation.folder import CurationFolder

    CurationFolder.create(tmp_path / "new", name="Chest")
    step, *options = words
    done = call("curate", step, tmp_path / "new", *options, expect=1)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("extract {new} --reports {tmp}/none.csv --seed 7", "none.csv"),
        ("extract {new} --reports {tmp}/odd.csv", "`--study`, `--patient` and `--report` or `--file` name columns"),
        ("extract {new} --reports {tmp}/two.xlsx", "`sheet` must be named (`sheet` in the mapping, or `--sheet`)"),
        ("extract {new} --suggestions {tmp}/odd.csv", "`labels` must be one of the twelve labels, got 'Fracture'"),
        ("candidates {new} --reports {tmp}/odd.csv --report labels", "needs `--model` and `--endpoint`"),
        ("refresh {new} --before {cur} --corrections {tmp}/odd.csv", "must be a column of odd.csv, got 'why'"),
    ],
)
def test_failed_first_call_starts_no_curation(folder: Path, tmp_path: Path, words: str, message: str) -> None:
    import openpyxl

    (tmp_path / "odd.csv").write_text("study,patient,labels\n1,2,Fracture\n", encoding="utf-8")
    book = openpyxl.Workbook()
    book.create_sheet("more")
    book.save(tmp_path / "two.xlsx")
    named = {"new": tmp_path / "new", "tmp": tmp_path, "cur": folder}
    assert message in call("curate", *(word.format(**named) for word in words.split()), expect=1).stderr
    assert not (tmp_path / "new").exists()


def test_folder_without_a_curation_is_refused(tmp_path: Path) -> None:
    assert "is not a curation folder" in call("curate", "status", tmp_path, expect=1).stderr
