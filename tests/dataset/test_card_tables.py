"""Tallies and the tables that are made of them, against counts by hand."""

from collections import Counter

import pytest

from reveal_bench.dataset import card_tables
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.findings.rows import study_row
from reveal_bench.kinds.tasks.rows import task_row
from tests.dataset.card_folders import FINDINGS, LABELS, localized, ratings, study, task
from tests.dataset.conftest import make_record

EDEMA = 4
"""Code of Edema in the benchmark chexlocalize."""


def localization_rows(benchmark, *records):
    return [KINDS["localization"].table.row(record, benchmark, [None]) for record in records]


def tally_of(rows, asked=("Edema",)):
    tally = KINDS["localization"].table.tally()
    for row in rows:
        tally.add(row, asked)
    return tally


@pytest.mark.parametrize(("kind", "counted"), [("localization", "images"), ("findings", "studies"), ("tasks", "tasks")])
def test_an_empty_split_counts_nothing(kind, counted):
    tally = KINDS[kind].table.tally()
    assert tally.size[f"n_{counted}"] == 0
    assert set(tally.size.values()) == {0}
    for table in ("acquisition_table", "agreement_table", "categories_table", "demographics_table", "views_table"):
        assert getattr(card_tables, table)({"test": tally})


def test_a_localization_tally(benchmark):
    records = [make_record(0), make_record(1, patient="p0"), make_record(2, annotations=(), missing=("Edema",))]
    tally = tally_of(localization_rows(benchmark, *records))
    assert tally.size == {"n_images": 3, "n_patients": 2, "n_asked": 3}
    assert tally.positives == Counter({EDEMA: 3})
    assert tally.drawn == tally.masks == Counter({(EDEMA, "ground_truth"): 2})
    assert tally.not_drawn == Counter({EDEMA: 1})
    assert tally.points == Counter({EDEMA: 3})
    assert tally.sizes == Counter({(30, 20): 3})
    assert tally.pairs == Counter()


def test_uncertain_and_unlabelled_findings_are_neither_present_nor_absent(benchmark):
    status = dict.fromkeys(benchmark.findings, 0) | {"Edema": -1, "Cardiomegaly": None}
    (row,) = localization_rows(benchmark, make_record(0, annotations=(), label_status=status))
    tally = tally_of([row], asked=())
    assert tally.unlabelled == Counter({EDEMA: 1, benchmark.findings.index("Cardiomegaly"): 1})
    assert tally.n_asked == 0


def test_drawings_of_individual_readers_are_counted_apart(benchmark):
    record = make_record(0)
    rows = localization_rows(benchmark, record)
    first = rows[0]["annotations"][0]
    rows[0]["annotations"] = [
        {**first, "reader": 2, "reader_id": name, "rle": None, "boxes_xywh": [[1.0, 2.0, 3.0, 4.0]]}
        for name in ("R1", "R2")
    ]
    tally = tally_of(rows)
    assert tally.drawn == Counter({(EDEMA, "individual"): 1})
    assert tally.masks == Counter()
    assert tally.readers_per_image == Counter({2: 1})
    assert "| `test` | 2 | 2 on 1 |" in card_tables.agreement_table({"test": tally})
    assert "individual readers |" in card_tables.findings_table({"test": tally}, benchmark.findings)


@pytest.mark.parametrize(("has_mask", "head"), [(True, "masks"), (False, "boxes")])
def test_the_findings_table_says_what_was_drawn(benchmark, has_mask, head):
    rows = localization_rows(benchmark, make_record(0))
    if not has_mask:
        rows[0]["annotations"][0]["rle"] = None
    text = card_tables.findings_table({"test": tally_of(rows)}, benchmark.findings)
    assert f"| {head} |" in text
    assert "| Edema | 1 | 100.0% | 1 | 1 | 0 | 1 |" in text


def test_a_findings_tally(tmp_path):
    records = [
        study(tmp_path, 0, ("Edema", "Mass"), n_images=2),
        study(tmp_path, 1, ("Mass",), agreement=None, race="unknown"),
        study(tmp_path, 2, (), agreement="two_of_three", n_agree_all=2),
    ]
    tally = KINDS["findings"].table.tally()
    for record in records:
        tally.add(study_row(record, LABELS, [None] * len(record.images)), LABELS)
    assert tally.size == {"n_studies": 3, "n_images": 4, "n_patients": 3, "n_asked": 9}
    assert tally.positives == Counter({0: 1, 1: 2})
    assert tally.pairs == Counter({(0, 1): 1})
    assert tally.n_labels == Counter({2: 1, 1: 1, 0: 1})
    tables = {"test": tally}
    assert "| `test` | 1 | 1 | 1 |" in card_tables.agreement_table(tables)
    assert "| race | White | 2 |\n| race | unknown | 1 |" in card_tables.demographics_table(tables)
    assert "| `test` | 3 | 1 |" in card_tables.views_table(tables)  # AP, LATERAL
    missing = card_tables.missing_list(tables, FINDINGS.findings)
    assert missing == "* split `test`: agreement unknown in 1 of 3; race unknown in 1 of 3; no study with Nodule"
    acquisition = card_tables.acquisition_table(tables)
    # images 0, 1, 10, 20: 90 kV for even numbers, 91 kV for odd ones
    assert "| tube voltage | 90 kV | 3 |\n| tube voltage | 91 kV | 1 |" in acquisition
    assert "| manufacturer | Carestream | 4 |" in acquisition
    assert "model" not in acquisition
    assert "12 pixels wide, 10 high" in acquisition


def test_a_tasks_tally_counts_a_shared_image_once(tmp_path):
    tally = KINDS["tasks"].table.tally()
    shared = task(tmp_path, 0).images
    for i in (0, 2):
        record = task(tmp_path, i, images=shared)
        tally.add(task_row(record, [None]), [record.category])
    assert tally.size == {"n_tasks": 2, "n_images": 1, "n_patients": 2, "n_asked": 2}


def test_ratings_are_means_over_readers_and_tasks(tmp_path):
    tally = KINDS["tasks"].table.tally()
    for row in ratings([task(tmp_path, 0), task(tmp_path, 2)]).rows:
        tally.add_extra("ratings", row)
    tally.add_extra("rubric", {"criterion": "process"})
    assert tally.extras == Counter(ratings=8, rubric=1)
    assert tally.ratings["b", "process"] == Counter({2: 2, 3: 2})
    text = card_tables.ratings_table({"test": tally})
    assert "8 ratings by 2 readers" in text
    assert "| b | 2.50 (n = 4) |" in text


def test_many_values_are_reported_together():
    tally = KINDS["findings"].table.tally()
    tally.acquisition["model"] = Counter({f"m{i:02d}": 1 for i in range(15)} | {None: 4})
    rows = [line for line in card_tables.acquisition_table({"test": tally}).splitlines() if line.startswith("| model")]
    assert len(rows) == 12 + 2
    assert rows[-2:] == ["| model | 3 others | 3 |", "| model | unknown | 4 |"]


def test_a_pipe_in_a_value_does_not_break_the_table():
    tally = KINDS["findings"].table.tally()
    tally.acquisition["model"] = Counter({"A|B": 1})
    assert "| model | A\\|B | 1 |" in card_tables.acquisition_table({"test": tally})


def test_a_column_without_a_meaning_is_an_error():
    from datasets import Features, Value

    with pytest.raises(ValueError, match="but lacks colour"):
        card_tables.features_table(Features({"image_id": Value("string"), "colour": Value("string")}))


def test_pictures_are_counted_by_their_sizes(tmp_path, benchmark):
    rows = localization_rows(benchmark, localized(tmp_path, 0), localized(tmp_path, 1, width=40))
    text = card_tables.acquisition_table({"test": tally_of(rows)})
    assert text.endswith("Split `test`: 30 to 40 pixels wide, 20 high.")


def test_of_a_long_vocabulary_only_what_occurs_has_a_row(benchmark):
    rows = localization_rows(benchmark, make_record(0))
    names = (*benchmark.findings, *(f"Rare {i}" for i in range(20)))
    text = card_tables.findings_table({"test": tally_of(rows)}, names)
    assert [line.split("|")[1].strip() for line in text.splitlines()[4:] if line.startswith("|")] == ["Edema"]
    assert text.endswith("Rare 18, Rare 19.")
    assert "Never present or drawn in this split: Enlarged Cardiomediastinum," in text


def test_nothing_drawn_is_neither_masks_nor_boxes(benchmark):
    rows = localization_rows(benchmark, make_record(0, annotations=(), missing=("Edema",)))
    text = card_tables.findings_table({"test": tally_of(rows)}, benchmark.findings)
    assert "| drawn | not drawn |" in text
