"""A system against single readers and against their consensus: hand-made votes, scikit-learn, masks of a few pixels."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score, recall_score

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.findings.cases import agreed_labels
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.localization.cases import agreed_regions, drawn_readings, image_by_reading
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.masks import decode_mask, encode_mask
from tests.cli.test_score import call
from tests.kinds.folders import studies

__all__ = ["studies"]


@pytest.fixture(scope="module")
def chexpert(tmp_path_factory):
    """CheXpert's labels with three readers, and one of them as a prediction file."""
    root = tmp_path_factory.mktemp("chexpert")
    call("phantom", root / "raw", "--style", "chexpert-labels", "--images", 60)
    call("build", root / "raw", "--source", "chexpert-labels", "--out", root / "ds")
    file = root / "bc4.jsonl"
    call(
        "convert", root / "ds", "--from", "table", "--file", root / "raw" / "bc4.csv", "--split", "test", "--out", file
    )
    return root / "ds", file


def votes(folder):
    """Reader -> bool array (n_studies, n_labels), studies in the order of the references."""
    bench = rb.load(folder, split="test")
    names = list(bench.info.findings)
    records = bench.kind.data.read_records(folder, "test")
    order = [record.study_id for record in records]
    results = {}
    for reader, statements in bench.kind.readers.readings(folder, "test", records).items():
        results[reader] = np.array([[name in statements[study] for name in names] for study in order])
    return results


def macro_f1(statements, reference) -> float:
    """Over the labels with a positive in either."""
    per_label = f1_score(reference, statements, average=None, zero_division=np.nan)
    return float(np.nanmean(per_label))


def test_figures_against_readers_are_those_of_scikit_learn(chexpert) -> None:
    folder, file = chexpert
    visible = {row["reference"]: row for row in rb.score(file, folder, split="test", readers=True).readers.records}
    by = votes(folder)
    assert set(by) == {"bc4", "bc6", "bc8"}
    n_votes = sum(array.astype(int) for array in by.values())
    for reference, expected in (
        ("reader bc6", by["bc6"]),
        ("at least one", n_votes >= 1),
        ("more than half", n_votes >= 2),
        ("all", n_votes == 3),
        ("others than bc6", by["bc4"] & by["bc8"]),
    ):
        assert visible[reference]["value"] == pytest.approx(macro_f1(by["bc4"], expected)), reference
        assert visible[reference]["n"] == 60
        assert visible[reference]["low"] < visible[reference]["value"] < visible[reference]["high"]
    assert visible["reader bc4"]["value"] == 1
    placed = visible["others than bc6"]
    assert placed["reader_value"] == pytest.approx(macro_f1(by["bc6"], by["bc4"] & by["bc8"]))
    assert placed["difference"] == pytest.approx(placed["value"] - placed["reader_value"], abs=1e-9)
    assert (visible["others than bc4"]["difference"], visible["others than bc4"]["p"]) == (0, 1)  # the system is bc4
    assert math.isnan(visible["all"]["p"])


def test_the_command_shows_what_the_function_gives(chexpert) -> None:
    folder, file = chexpert
    words = ("score", file, folder, "--split", "test", "--readers", "--metric", "Recall", "--resamples", 20)
    text = call(*words).stdout
    assert "Recall, macro, against single readers" in text
    assert "others than bc8" in text
    document = json.loads(call(*words, "--json").stdout)["readers"]
    assert [row["reference"] for row in document][3:6] == ["at least one", "more than half", "all"]
    assert document[0]["reader"] is None
    assert call(*words, "--format", "csv").stdout.startswith(
        "reference,metric,n,value,low,high,reader,reader_value,difference,"
    )
    assert "readers" not in json.loads(call("score", file, folder, "--split", "test", "--json").stdout)


def test_unsuitable_benchmarks_are_refused(chexpert, studies) -> None:
    folder, files = studies
    refused = call("score", files / "right.jsonl", folder, "--split", "test", "--readers", expect=1).stderr
    assert "--readers must be used with a dataset folder that has readings of single readers, got" in refused
    assert "which has none" in refused
    of_chexpert, file = chexpert
    with pytest.raises(ArgumentError, match=r"`metric` must be one of f1, precision, .*, got 'point_hit'"):
        rb.score(file, of_chexpert, split="test", readers=True, metric="Hit rate")
    names = rb.load(of_chexpert, split="test").info.findings
    certain = {
        row["study_id"]: {name: float(name in row["labels"]) for name in names}
        for row in map(json.loads, file.read_text().splitlines())
    }
    areas = rb.score(certain, of_chexpert, split="test", readers=True, metric="auroc", n_resamples=50).readers.records
    assert areas[0]["value"] == 1
    assert {row["reader"] for row in areas} == {None}  # readers give no probabilities
    assert {row["metric"] for row in rb.score(file, of_chexpert, split="test", metric="f1").records} == {"f1"}


def test_readings_are_the_table_of_a_reader_study(chexpert, tmp_path) -> None:
    folder, file = chexpert
    table = rb.readings(file, folder, split="test", finding="Pleural Effusion", name="system")
    assert table.caption == "60 cases read by bc4, bc6, bc8, system"
    study = rb.readers(table, merit="sensitivity")
    assert study.system == "system"
    statements, bench = votes(folder), rb.load(folder, split="test")
    column = list(bench.info.findings).index("Pleural Effusion")
    truth = np.array(["Pleural Effusion" in r.labels for r in bench.kind.data.read_records(folder, "test")])
    results = {(row["modality"], row["reader"]): row["value"] for row in study.by_reader()}
    for reader, labels in statements.items():
        assert results["readers", reader] == pytest.approx(recall_score(truth, labels[:, column])), reader
        assert results["system", reader] == pytest.approx(recall_score(truth, statements["bc4"][:, column]))
    (difference,) = study.analysis.differences
    readers = np.mean([recall_score(truth, labels[:, column]) for labels in statements.values()])
    assert difference.estimate.value == pytest.approx(recall_score(truth, statements["bc4"][:, column]) - readers)
    mine = tmp_path / "mine.jsonl"
    mine.write_bytes(file.read_bytes())
    printed = call("readings", mine, folder, "--split", "test").stdout
    assert printed == rb.readings(mine, folder, split="test").to_csv()
    assert printed.count("\n") == 1 + 4 * 60 * len(bench.info.findings)


def test_studies_of_readings_name_what_they_pool_and_benchmarks_the_function_of_their_readers(chexpert) -> None:
    folder, file = chexpert
    bench = rb.load(folder, split="test")
    study = rb.readers(rb.readings(file, bench, name="system"), merit="sensitivity")
    assert "3 readers and system on 840 cases of " in study.caption  # 60 studies x 14 findings
    assert "(14 findings pooled; `readings` with `finding` selects one)" in study.caption
    for analyse in (rb.readers, rb.agreement):
        with pytest.raises(ArgumentError, match=r"the readers of a benchmark: rb.readings\(predictions, bench\), got"):
            analyse(bench)
    with pytest.raises(ArgumentError, match="must be a whole split here; pass `finding` to select one finding, got"):
        rb.readings(file, bench.select(["Edema"]))


def test_readers_who_made_the_reference_can_be_left_out(chexpert, tmp_path) -> None:
    folder, file = chexpert
    whole = rb.readings(file, folder, split="test", name="system")
    for names in (["bc6"], ["bc8", "bc4"], ["bc4", "bc6", "bc8"]):
        part = rb.readings(file, folder, split="test", name="system", only_readers=names)
        assert part.rows == [row for row in whole.rows if row.reader in (*names, "system")]
    mine = tmp_path / "mine.jsonl"
    mine.write_bytes(file.read_bytes())
    words = ("readings", mine, folder, "--split", "test", "--only-readers")
    printed = call(*words, "bc6, bc4").stdout
    assert {line.split(",")[0] for line in printed.splitlines()[1:]} == {"bc4", "bc6", "mine"}
    refused = call(*words, "bc6,bc5", expect=1).stderr
    assert "--only-readers must name some of bc4, bc6, bc8, got ['bc5']" in refused
    with pytest.raises(ArgumentError, match=r"`only_readers` must name some of bc4, bc6, bc8, got \[\]"):
        rb.readings(file, folder, split="test", name="system", only_readers=[])


def test_readers_of_the_folder_are_points_beside_a_curve(chexpert, tmp_path) -> None:
    """A system with one probability has the diagonal as its curve: below it are readers with sensitivity < FPR."""
    folder, _ = chexpert
    statements, bench = votes(folder), rb.load(folder, split="test")
    findings, records = list(bench.info.findings), list(bench.kind.data.read_records(folder, "test"))
    flat = tmp_path / "flat.jsonl"
    lines = [{"study_id": record.study_id, "probabilities": dict.fromkeys(findings, 0.5)} for record in records]
    flat.write_text("\n".join(map(json.dumps, lines)))
    asked = bench.select(findings[1:5])
    part = rb.score(flat, asked, readers=True, n_resamples=2, metric="f1").readers
    assert len(part.records) == 9
    for chosen, names in ((bench, findings), (asked, findings[1:5])):
        result = rb.curves(flat, chosen, n_resamples=2, readers={"bc4": None, "bc8": None})
        points = {(one.finding, one.reader): one for one in result.readers}
        assert {finding for finding, _ in points} == {*result.curves.roc} <= {*names}
        assert len(points) == 2 * len(result.curves.roc) > 0
        for (finding, reader), point in points.items():
            truth = np.array([finding in record.labels for record in records])
            called = statements[reader][:, findings.index(finding)]
            rates = recall_score(truth, called), 1 - recall_score(truth, called, pos_label=False)
            assert (point.sensitivity, point.false_positive_rate) == pytest.approx(rates)
            assert point.below_curve is bool(rates[0] < rates[1] - 1e-9)
    printed = call("curves", flat, folder, "--split", "test", "--resamples", 2, "--reader", "bc4").stdout
    assert "readers below the curve" in printed
    refused = call("curves", flat, folder, "--split", "test", "--resamples", 2, "--reader", "bc5", expect=1).stderr
    assert "`readers` must be files or readers of the folder, bc4, bc6, bc8, got 'bc5'" in refused


def test_readings_that_are_not_there_are_refused(chexpert, studies) -> None:
    folder, file = chexpert
    with pytest.raises(ArgumentError, match="must differ from the readers' names: bc4, bc6, bc8, got 'bc4'"):
        rb.readings(file, folder, split="test")
    with pytest.raises(ArgumentError, match=r"`finding` must be one of No Finding, .*, got 'Oedema'"):
        rb.readings(file, folder, split="test", finding="Oedema", name="system")
    plain, files = studies
    with pytest.raises(ArgumentError, match=r"has readings of single readers, got .*, which has none"):
        rb.readings(files / "right.jsonl", plain, split="test")


def test_studies_that_not_every_reader_read_are_left_out(chexpert, monkeypatch) -> None:
    folder, file = chexpert
    kind = rb.load(folder, split="test").kind
    whole = kind.readers.readings

    def partly(self, *arguments):
        results = {reader: dict(statements) for reader, statements in whole(*arguments).items()}
        results["bc8"].popitem()
        return results

    monkeypatch.setattr(type(kind.readers), "readings", partly)
    table = rb.readings(file, folder, split="test", name="system")
    assert table.n_left_out == 1
    assert table.caption.endswith("; studies omitted because a reader did not read them: 1")
    assert len(table.rows) == 4 * 59 * 14
    bench = rb.load(folder, split="test")
    studies = [record.study_id for record in kind.data.read_records(folder, "test")]
    flat = {study: dict.fromkeys(bench.info.findings, 0.5) for study in studies}
    with pytest.raises(ArgumentError, match=r"must have read every case; .*, got 'bc8', who has not read 1 of 60"):
        rb.curves(flat, bench, n_resamples=2, readers={"bc8": None})


def test_human_benchmark_of_masks_is_one_reader(twin_of, tmp_path) -> None:
    folder, chance = tmp_path / "folder", tmp_path / "chance.jsonl"
    call("build", twin_of("chexlocalize"), "--source", "chexlocalize", "--images", "withhold", "--out", folder)
    call("baseline", "chance", folder, "--split", "test", "--out", chance)
    (row,) = rb.score(chance, folder, split="test", readers=True, metric="point_hit").readers.records
    assert (row["reference"], row["metric"]) == ("reader human benchmark", "point_hit")
    records = rb.load(folder, split="test").kind.data.read_records(folder, "test")
    drawn = drawn_readings(folder, "test", records)["human benchmark"]
    of_human = [image_by_reading(record, drawn[record.image_id]) for record in records if record.image_id in drawn]
    assert row["n"] == len(of_human)
    hits = []
    for finding in records[0].label_status:
        here = []
        for record in of_human:
            mask = record.reference(finding)
            statements = [p for p in map(json.loads, chance.read_text().splitlines())
                    if (p["image_id"], p["finding"]) == (record.image_id, finding)]  # fmt: skip
            if mask is not None and statements:
                here.append((statements[0], decode_mask(mask.rle)))
        if here:
            hits.append(np.mean([is_hit(one, mask) for one, mask in here]))
    assert row["value"] == pytest.approx(np.mean(hits))


def is_hit(prediction, mask) -> bool:
    """Return True if the cell's centre is in the mask; the grid is over the central square."""
    height, width = mask.shape
    side = min(height, width) / 8
    left, top = (width - 8 * side) / 2, (height - 8 * side) / 2
    row, column = int(prediction["cell"][1:]) - 1, ord(prediction["cell"][0]) - ord("A")
    x, y = left + (column + 0.5) * side, top + (row + 0.5) * side
    return bool(mask[int(y), int(x)])


def drawing(rows: list[str], reader: str) -> Annotation:
    mask = np.array([[character == "#" for character in row] for row in rows])
    return Annotation("Edema", "individual", encode_mask(mask), area_px=int(mask.sum()), reader_id=reader)


def test_pixels_and_labels_that_enough_readers_gave() -> None:
    statements = [
        {"Edema": drawing(["##..", "##..", "...."], "a")},
        {"Edema": drawing([".##.", ".##.", "...."], "b")},
        {"Edema": Annotation("Edema", "individual", None, boxes_xywh=((1.0, 1.0, 2.0, 2.0),), area_px=4)},
        {},
    ]
    image = LocalizationRecord("i", "p", "s", "PA", 4, 3, {"Edema": 1})
    expected = {1: ["###.", "###.", ".##."], 2: [".#..", ".##.", "...."], 3: ["....", ".#..", "...."]}
    for at_least, rows in expected.items():
        results = agreed_regions(image, statements, at_least)["Edema"]
        assert decode_mask(results.rle).tolist() == [[c == "#" for c in row] for row in rows]
        assert results.area_px == sum(row.count("#") for row in rows)
    assert agreed_regions(image, statements, 4) == {}
    study, labels = StudyRecord("s", "p", ()), [["a", "b"], ["b"], ["b", "c"]]
    assert [agreed_labels(study, labels, n) for n in (1, 2, 3, 4)] == [("a", "b", "c"), ("b",), ("b",), ()]


def test_drawings_of_what_is_not_asked_have_no_part() -> None:
    truth = Annotation("Edema", "ground_truth", encode_mask(np.ones((2, 2), bool)), area_px=4)
    record = LocalizationRecord("i", "p", "s", "PA", 2, 2, {"Edema": 1, "Fracture": 1}, (
        truth, drawing(["#.", ".."], "a"), Annotation("Fracture", "individual", None, area_px=1, reader_id="a"),
        Annotation("Edema", "individual", encode_mask(np.zeros((2, 2), bool)), reader_id="b"),
    ))  # fmt: skip
    results = drawn_readings(Path(), "test", [record])
    assert list(results["a"]["i"]) == ["Edema"]
    assert results["b"] == {"i": {}}  # b read the image and drew nothing: absent there
    assert image_by_reading(record, results["b"]["i"]).asked("present") == []
