"""A refresh: corrected labels, new studies, patients that were seen before, a holdout that is retired."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.curation.folder import CurationError, CurationFolder
from reveal_bench.curation.refresh import read_corrections, refresh
from reveal_bench.curation.split import write_benchmark
from reveal_bench.curation.tables import Placed, Released, Selected, read_table, write_table
from reveal_bench.sources.source import BuildError

EFFUSION, COPD, NODULE = ("Pleural effusion",), ("COPD",), ("Lung nodule",)
BEFORE = [
    Placed("r1", "p1", EFFUSION, 3, "released", "1.0.0"),
    Placed("r2", "p2", COPD, 2, "released", "1.0.0"),
    Placed("h1", "p3", EFFUSION, 2, "holdout", "1.0.0"),
    Placed("h2", "p4", NODULE, 3, "holdout", "1.0.0"),
]
SEXES = {"sex": {"r1": "F", "r2": "M", "h1": "F", "h2": ""}}
BENCHMARK = ("benchmark/labels.csv", "benchmark/mapping.yaml")
Rows = Sequence[Sequence[str]]


def made(root: Path, step: str, name: str, rows: Sequence[Any], row: type, **settings: Any) -> CurationFolder:
    """Return a folder in which a step wrote one table, and the steps before it wrote nothing."""
    folder = CurationFolder.create(root, name="Chest", seed=3)

    def work(scratch: Path) -> dict[str, Any]:
        write_table(scratch / name, rows, row)
        if step == "split":
            write_benchmark(scratch / "benchmark", rows, demographics=SEXES)
        return {"version": "1.0.0"}

    for earlier in ("extract", "sample", "assign", "import-votes", "consensus", "select"):
        if earlier == step:
            break
        folder.run(earlier, {}, lambda scratch: {}, writes=())
    folder.run(step, settings, work, writes=(name, *(BENCHMARK if step == "split" else ())))
    return folder


@pytest.fixture
def before(tmp_path: Path) -> CurationFolder:
    return made(tmp_path / "v1", "split", "split.parquet", BEFORE, Placed, version="1.0.0")


def new(root: Path, patients: Iterable[str]) -> CurationFolder:
    return new_of(root, {f"n-{patient}": patient for patient in patients})


def new_of(root: Path, patient_of: Mapping[str, str]) -> CurationFolder:
    rows = [Selected(study, patient, COPD, 2, "less_common") for study, patient in patient_of.items()]
    return made(root, "select", "selection.parquet", rows, Selected)


def table(path: Path, rows: Rows, header: Sequence[str] = ("study", "labels", "why")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def placed(folder: CurationFolder) -> dict[str, Placed]:
    return {one.study_id: one for one in read_table(folder.path("split.parquet"), Placed)}


def test_corrected_labels_make_a_minor_version(before: CurationFolder, tmp_path: Path) -> None:
    rows = [["h1", "copd; pleural effusion", "second look at CT"], ["r2", "None", "the film was another patient's"]]
    corrections = table(tmp_path / "c.csv", rows)
    after = CurationFolder.create(tmp_path / "v2", name="Chest")
    record = refresh(after, before, corrections=corrections)
    assert (record.counts["version"], record.counts["corrected"]) == ("1.1.0", 2)
    assert record.counts["studies"] == {"released": 2, "holdout": 2}
    now = placed(after)
    assert now["h1"] == Placed("h1", "p3", ("COPD", "Pleural effusion"), None, "holdout", "1.0.0")
    assert now["r2"].labels == ()
    assert [now[one] for one in ("r1", "h2")] == [BEFORE[0], BEFORE[3]]
    diff = json.loads(after.path("labels_diff.json").read_text())
    assert (diff["from"], diff["to"], diff["added"], diff["released"]) == ("1.0.0", "1.1.0", [], [])
    assert diff["corrected"][0] == {
        "study_id": "h1", "half": "holdout", "labels_before": list(EFFUSION), "labels": ["COPD", "Pleural effusion"],
        "why": "second look at CT",
    }  # fmt: skip
    assert diff["prevalence"]["holdout"]["COPD"] == [0, 1]
    assert diff["prevalence"]["released"]["COPD"] == [1, 0]


def test_what_build_reads_follows(before: CurationFolder, tmp_path: Path) -> None:
    facts = table(tmp_path / "f.csv", [["n-p7", "M"], ["n-p8", "F"]], ("study", "sex"))
    corrections = table(tmp_path / "c.csv", [["r1", "COPD", "adjudicated"]])
    after = CurationFolder.create(tmp_path / "v2", name="Chest")
    refresh(after, before, corrections=corrections, additions=new(tmp_path / "new", ["p7", "p8"]), facts=facts)
    with after.path("benchmark/labels.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["study_id"]: row for row in csv.DictReader(file)}
    assert (rows["r1"]["labels"], rows["r1"]["n_agree_all"], rows["r1"]["sex"]) == ("COPD", "", "F")
    assert (rows["n-p7"]["sex"], rows["h2"]["sex"]) == ("M", "")
    assert "sex: {column: sex}" in after.path("benchmark/mapping.yaml").read_text()


def test_new_studies_make_a_major_version_and_are_halved(before: CurationFolder, tmp_path: Path) -> None:
    after = CurationFolder.create(tmp_path / "v2", name="Chest")
    record = refresh(after, before, additions=new(tmp_path / "new", [f"q{i}" for i in range(6)]))
    assert record.counts["version"] == "2.0.0"
    assert record.counts["added"] == {"released": 3, "holdout": 3}
    now = placed(after)
    assert {one.half for one in now.values() if one.study_id in ("h1", "h2")} == {"holdout"}
    assert {one.since for one in now.values() if one.study_id.startswith("n-")} == {"2.0.0"}


def test_patients_seen_before_do_not_come_in(before: CurationFolder, tmp_path: Path) -> None:
    after = CurationFolder.create(tmp_path / "v2", name="Chest")
    record = refresh(after, before, additions=new(tmp_path / "new", ["p1", "p3", "q1", "q2"]))
    assert (record.counts["left_out_released_before"], record.counts["left_out_in_holdout"]) == (1, 1)
    assert set(placed(after)) == {"r1", "r2", "h1", "h2", "n-q1", "n-q2"}


def test_a_retired_holdout_is_released_and_its_patients_are_remembered(before: CurationFolder, tmp_path: Path) -> None:
    second = CurationFolder.create(tmp_path / "v2", name="Chest")
    record = refresh(second, before, additions=new(tmp_path / "new", ["q1", "q2", "q3"]), retire_holdout=True)
    assert (record.counts["retired"], record.counts["added"]) == (2, {"released": 0, "holdout": 3})
    assert {study: one.half for study, one in placed(second).items()} == {
        "r1": "released", "r2": "released", "h1": "released", "h2": "released",
        "n-q1": "holdout", "n-q2": "holdout", "n-q3": "holdout",
    }  # fmt: skip
    history = read_table(second.path("history.parquet"), Released)
    assert history == [
        Released("h1", "p3", "2.0.0"), Released("h2", "p4", "2.0.0"), Released("r1", "p1", "1.0.0"),
        Released("r2", "p2", "1.0.0"),
    ]  # fmt: skip
    third = CurationFolder.create(tmp_path / "v3", name="Chest")
    record = refresh(third, second, additions=new(tmp_path / "newer", ["p4", "q1", "z1", "z2"]))
    assert record.counts["version"] == "3.0.0"
    assert (record.counts["left_out_released_before"], record.counts["left_out_in_holdout"]) == (1, 1)
    assert {"n-z1", "n-z2"} < set(placed(third))


def test_only_what_was_published_before_is_published_of_new_patients(before: CurationFolder, tmp_path: Path) -> None:
    additions = new(tmp_path / "new", ["p7", "p8"])
    rows = [["n-p7", "M", "Asian", "60-69"], ["n-p8", "F", "White", "70-79"]]
    facts = table(tmp_path / "f.csv", rows, ("study", "sex", "race", "maker"))
    after = CurationFolder.create(tmp_path / "v2", name="Chest")
    refresh(after, before, additions=additions, facts=facts)
    text = after.path("benchmark/labels.csv").read_text()
    assert text.splitlines()[0] == "study_id,patient_id,labels,n_agree_all,split,sex"
    assert "Asian" not in text
    assert "race" not in after.path("benchmark/mapping.yaml").read_text()


def test_facts_are_not_ignored_in_silence(before: CurationFolder, tmp_path: Path) -> None:
    after = CurationFolder.create(tmp_path / "v2", name="Chest")
    facts = table(tmp_path / "f.csv", [["n-p7", "Asian"]], ("study", "race"))
    corrections = table(tmp_path / "c.csv", [["r1", "COPD", "adjudicated"]])
    with pytest.raises(CurationError, match="`facts` must describe new studies, got no `additions`"):
        refresh(after, before, corrections=corrections, facts=facts)
    with pytest.raises(CurationError, match=r"that the previous version publishes \(sex\), got race"):
        refresh(after, before, additions=new(tmp_path / "new", ["p7", "p8"]), facts=facts)
    assert after.record("refresh") is None


def test_a_known_study_of_another_patient_is_refused(before: CurationFolder, tmp_path: Path) -> None:
    """If patients were renamed between versions, released patients could enter the holdout."""
    after = CurationFolder.create(tmp_path / "v2", name="Chest")
    studies = {"r1": "new-1", "h2": "new-2", "n1": "new-3", "r2": "p2"}
    with pytest.raises(CurationError, match=r"got other patient ids for the studies h2, r1$"):
        refresh(after, before, additions=new_of(tmp_path / "new", studies))
    assert not after.path("split.parquet").exists()


def test_a_study_released_earlier_does_not_come_back_under_a_new_pseudonym(
    before: CurationFolder, tmp_path: Path
) -> None:
    second = CurationFolder.create(tmp_path / "v2", name="Chest")
    refresh(second, before, corrections=table(tmp_path / "c.csv", [["r1", "COPD", "adjudicated"]]))
    history = [*read_table(second.path("history.parquet"), Released), Released("x0", "p0", "0.9.0")]

    def work(scratch: Path) -> dict[str, Any]:
        for name in (*BENCHMARK, "split.parquet"):
            (scratch / name).parent.mkdir(exist_ok=True)
            (scratch / name).write_bytes(second.path(name).read_bytes())
        write_table(scratch / "history.parquet", history, Released)
        return {"version": "1.1.0"}

    second.run("refresh", {}, work, writes=(*BENCHMARK, "split.parquet", "history.parquet"), redo=True)
    third = CurationFolder.create(tmp_path / "v3", name="Chest")
    with pytest.raises(CurationError, match=r"got other patient ids for the studies x0$"):
        refresh(third, second, additions=new_of(tmp_path / "new", {"x0": "renamed", "n1": "q1", "n2": "q2"}))
    record = refresh(third, second, additions=new_of(tmp_path / "newer", {"x0": "p0", "n1": "q1", "n2": "q2"}))
    assert record.counts["left_out_released_before"] == 1
    assert Released("x0", "p0", "0.9.0") in read_table(third.path("history.parquet"), Released)


def test_done_twice_is_done_once_and_the_same_bytes(before: CurationFolder, tmp_path: Path) -> None:
    additions = new(tmp_path / "new", [f"q{i}" for i in range(9)])
    folders = [CurationFolder.create(tmp_path / name, name="Chest", seed=5) for name in ("a", "b")]
    assert [refresh(folder, before, additions=additions).is_new for folder in (*folders, folders[0])] == [
        True, True, False,
    ]  # fmt: skip
    for name in ("split.parquet", "history.parquet", "labels_diff.json", "benchmark/labels.csv", "curation.json"):
        assert folders[0].path(name).read_bytes() == folders[1].path(name).read_bytes()


@pytest.mark.parametrize(
    ("rows", "rule"),
    [
        ([["x", "COPD", "w"]], "c.csv:2: `study` must be a study of the previous version, got x"),
        (
            [["r1", "COPD", "w"], ["r1", "None", "w"]],
            "c.csv:3: `study` must occur in one row only, got 'r1' again, first in row 2",
        ),
        ([["r1", "", "w"]], 'c.csv:2: `labels` must name labels, or "None" for a study without labels, got a blank'),
        ([["r1", "COPDD", "w"]], r"`labels` must be one of the twelve labels, got 'COPDD' \(nearest: 'COPD'\)"),
        ([["r1", "COPD; none", "w"]], 'c.csv:2: `labels` must not contain both "None" and a label, got COPD, none'),
        ([["r1", "COPD; copd", "w"]], "c.csv:2: `labels` must name each label once, got COPD again"),
        ([["r1", "COPD", " "]], "c.csv:2: `why` must give the reason for the change, got a blank"),
        ([["r1", "pleural effusion", "w"]], "c.csv:2: `labels` must differ from the present labels, got pleural"),
        ([], "must"),
    ],
    ids=["stranger", "twice", "blank", "unknown", "none and one", "label twice", "no reason", "the same", "no rows"],
)
def test_wrong_corrections_are_all_told(tmp_path: Path, rows: Rows, rule: str) -> None:
    with pytest.raises(BuildError, match=rule):
        read_corrections(table(tmp_path / "c.csv", rows), BEFORE)


def test_corrections_need_their_columns(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"must be a column of c\.csv, got 'why'; it has study, labels"):
        read_corrections(table(tmp_path / "c.csv", [["r1", "COPD"]], ("study", "labels")), BEFORE)


def test_a_refresh_changes_something_in_a_folder_of_its_own(before: CurationFolder, tmp_path: Path) -> None:
    after = CurationFolder.create(tmp_path / "v2", name="Chest")
    with pytest.raises(CurationError, match="needs corrected labels or new studies, got neither"):
        refresh(after, before)
    with pytest.raises(CurationError, match="retired only if new studies take its place"):
        refresh(after, before, corrections=tmp_path / "c.csv", retire_holdout=True)
    with pytest.raises(CurationError, match="must bring in new patients, got none in 2 studies"):
        refresh(after, before, additions=new(tmp_path / "new", ["p1", "p2"]))
    with pytest.raises(CurationError, match="must start in a new curation folder"):
        refresh(before, before, additions=new(tmp_path / "newer", ["q"]))
    with pytest.raises(CurationError, match="split must be done first"):
        refresh(after, CurationFolder.create(tmp_path / "empty", name="Chest"), corrections=tmp_path / "c.csv")


def test_a_refresh_does_not_write_over_what_it_reads(before: CurationFolder, tmp_path: Path) -> None:
    corrections = table(tmp_path / "c.csv", [["r1", "COPD", "adjudicated"]])
    second = CurationFolder.create(tmp_path / "v2", name="Chest")
    refresh(second, before, corrections=corrections)
    again = table(tmp_path / "again.csv", [["r1", "None", "adjudicated again"]])
    (tmp_path / "link").symlink_to(tmp_path / "v2")
    written = second.path("split.parquet").read_bytes()
    for same in (second, CurationFolder(tmp_path / "link"), CurationFolder(tmp_path / "v1" / ".." / "v2")):
        with pytest.raises(CurationError, match="a new curation folder, got the folder of `before`"):
            refresh(second, same, corrections=again, redo=True)
    assert second.path("split.parquet").read_bytes() == written
    additions = new(tmp_path / "new", ["q1", "q2"])
    with pytest.raises(CurationError, match="a new curation folder, got the folder of `additions`"):
        refresh(additions, before, additions=additions)
    with pytest.raises(CurationError, match="must be another curation than `before`, got the same folder"):
        refresh(CurationFolder.create(tmp_path / "v3", name="Chest"), before, additions=before)


def test_a_folder_with_another_step_is_refused_and_one_with_a_report_is_not(
    before: CurationFolder, tmp_path: Path
) -> None:
    corrections = table(tmp_path / "c.csv", [["r1", "COPD", "adjudicated"]])
    after = CurationFolder.create(tmp_path / "v2", name="Chest")
    after.run("report", {}, lambda scratch: {}, writes=())
    assert refresh(after, before, corrections=corrections).is_new
    other = CurationFolder.create(tmp_path / "other", name="Chest")
    other.run("extract", {}, lambda scratch: {}, writes=())
    with pytest.raises(CurationError, match="got one in which these steps were done: extract"):
        refresh(other, before, corrections=corrections)
