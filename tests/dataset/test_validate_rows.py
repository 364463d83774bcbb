"""Rules of single rows: a table of errors, and of odd values that are allowed."""

import pytest

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.findings.rows import study_row
from reveal_bench.kinds.tasks.records import Rating
from reveal_bench.kinds.tasks.rows import rating_faults, rating_row, task_row
from tests.dataset.card_folders import LABELS, study, task
from tests.dataset.conftest import make_record

BOX = {"rle": None, "boxes_xywh": [[1.0, 2.0, 3.0, 4.0], [10.0, 2.0, 5.0, 2.0]], "n_instances": 2,
       "bbox_xywh": [1.0, 2.0, 14.0, 4.0]}  # fmt: skip


def fields(kind, row, findings):
    return [field for field, _, _ in KINDS[kind].table.row_faults(row, findings)]


@pytest.fixture
def image(benchmark):
    return KINDS["localization"].table.row(make_record(0), benchmark, [None])


@pytest.fixture
def a_study(tmp_path):
    return study_row(study(tmp_path, 0, ("Edema", "Mass"), n_images=2), LABELS, [None, None])


@pytest.fixture
def a_task(tmp_path):
    return task_row(task(tmp_path, 1), [None, None])


def drawn(row, **changes):
    row["annotations"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda row: None, []),
        (lambda row: row.update(width=0), ["size", "points"]),
        (lambda row: row.update(labels=[]), ["labels"]),
        (lambda row: row["label_status"].update(Edema=3), ["labels", "label_status"]),
        (lambda row: row["label_status"].update(Cardiomegaly=-1), []),
        (lambda row: row["label_status"].update(Cardiomegaly=None), []),
        (lambda row: row["annotations"].append(dict(row["annotations"][0])), ["annotations"]),
        (lambda row: row["annotations"].append({**row["annotations"][0], "reader": 1}), []),
        (lambda row: drawn(row, reader_id="R1"), ["annotations[Edema, ground_truth].reader_id"]),
        (lambda row: drawn(row, reader=2), ["annotations[Edema, individual].reader_id"]),
        (lambda row: drawn(row, reader=2, reader_id="R1"), []),
        (lambda row: drawn(row, polygons=[[[1.0, 2.0]]]), ["annotations[Edema, ground_truth].polygons"]),
        (lambda row: drawn(row, polygons=[[[1.0, float("nan")]] * 3]), ["annotations[Edema, ground_truth].polygons"]),
        (lambda row: drawn(row, **BOX), []),
        (lambda row: drawn(row, **{**BOX, "n_instances": 1}), ["annotations[Edema, ground_truth].n_instances"]),
        (lambda row: drawn(row, **{**BOX, "bbox_xywh": None}), ["annotations[Edema, ground_truth].bbox_xywh"]),
        (
            lambda row: drawn(row, **{**BOX, "bbox_xywh": [1.0, 2.0, 14.0, 4.1]}),
            ["annotations[Edema, ground_truth].bbox_xywh"],
        ),
        (lambda row: drawn(row, boxes_xywh=[[1.0, 2.0, 0.0, 4.0]]), ["annotations[Edema, ground_truth].boxes_xywh"]),
        (lambda row: drawn(row, boxes_xywh=[[30.0, 2.0, 3.0, 4.0]]), ["annotations[Edema, ground_truth].boxes_xywh"]),
        (lambda row: drawn(row, boxes_xywh=[[-1.0, -2.0, 40.0, 40.0]]), []),  # sticks out on all sides
        (lambda row: row["points"][0].update(x=30.0), ["points"]),
        (lambda row: row["points"][0].update(x=0.0, y=19.99), []),
        (lambda row: row.update(missing=[4]), ["missing"]),
        (lambda row: row.update(missing=[0]), ["missing"]),
        (lambda row: row.update(missing=[4], annotations=[]), []),
        (lambda row: row.update(labels=[], annotations=[], points=[], label_status=None), []),
    ],
)
def test_images(image, benchmark, change, expected):
    change(image)
    assert fields("localization", image, benchmark.findings) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda row: None, []),
        (lambda row: row.update(images=[None]), ["images"]),
        (lambda row: row.update(views=[0]), ["views", "views"]),
        (lambda row: row.update(views=[1, 2]), ["views"]),
        (lambda row: row.update(image_ids=["image-0", "image-0"]), ["image_ids", "image_facts.image_id"]),
        (lambda row: row["image_facts"].reverse(), ["image_facts.image_id", "views"]),
        (lambda row: row["image_facts"][1].update(height=0), ["image_facts[image-1].size"]),
        (lambda row: row.update(label_vector=[1, 0, 0]), ["label_vector"]),
        (lambda row: row.update(label_vector=None), ["label_vector"]),
        (lambda row: row.update(labels=[1, 0]), ["labels"]),
        (lambda row: row.update(labels=[], label_vector=[0, 0, 0]), []),
        (lambda row: row.update(n_agree_all=4, agreement=None), ["n_agree_all"]),
        (lambda row: row.update(n_agree_all=2), ["agreement"]),
        (lambda row: row.update(n_agree_all=2, agreement=0), []),
        (lambda row: row.update(n_agree_all=None), []),
        (lambda row: row.update(n_agree_all=1, agreement=None), []),
    ],
)
def test_studies(a_study, change, expected):
    change(a_study)
    assert fields("findings", a_study, LABELS) == expected


def boxed(row, *xywh, image_id="image-1"):
    row["reference_boxes"] = [{"label": "opacity", "bbox_xywh": list(xywh), "image_id": image_id}]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda row: None, []),
        (lambda row: row.update(prompt="  "), ["prompt"]),
        (lambda row: row.update(prompt=None), ["prompt"]),
        (lambda row: row.update(images=[]), ["images"]),
        (lambda row: row.update(prior_images=[]), ["prior_images"]),
        (lambda row: row.update(image_ids=[], images=[], image_facts=[]), ["reference_boxes"]),
        (lambda row: row.update(image_ids=["other"]), ["image_facts.image_id"]),
        (lambda row: row["question_scores"].update(clarity=0), ["question_scores.clarity"]),
        (lambda row: row["question_scores"].update(clarity=None), []),
        (lambda row: row.update(question_scores=None), []),
        (lambda row: row.update(reference_answer=None, reference_boxes=[]), []),
        (lambda row: boxed(row, 0, 0, 12, 10), []),  # the whole image
        (lambda row: boxed(row, 0, 0, 12.5, 10), ["reference_boxes"]),
        (lambda row: boxed(row, -1, 0, 5, 5), ["reference_boxes"]),
        (lambda row: boxed(row, 1, 1, 0, 5), ["reference_boxes"]),
        (lambda row: boxed(row, 1, 1, 5, 5, image_id="image-101"), []),  # the prior image
        (lambda row: boxed(row, 1, 1, 5, 5, image_id=None), []),
        (lambda row: boxed(row, 1, 1, 15, 5, image_id=None), ["reference_boxes"]),
        (lambda row: boxed(row, 1, 1, 5, 5, image_id="image-7"), ["reference_boxes"]),
    ],
)
def test_tasks(a_task, change, expected):
    change(a_task)
    assert fields("tasks", a_task, ()) == expected


def test_ratings():
    row = rating_row(Rating("task-1", "a", "r", process=0, execution=5, language=6, image_style=None))
    assert [(field, value) for field, _, value in rating_faults(row)] == [("process", "0"), ("language", "6")]


def test_questions_asked_of_each_kind(image, a_study, a_task, benchmark):
    assert KINDS["localization"].questions.asked_of(image, benchmark.findings, "present") == ["Edema"]
    assert KINDS["localization"].questions.asked_of(image, benchmark.findings, "all") == list(benchmark.findings)
    image["annotations"][0]["area_px"] = 0
    assert KINDS["localization"].questions.asked_of(image, benchmark.findings, "present") == []
    assert KINDS["findings"].questions.asked_of(a_study, LABELS, "present") == list(LABELS)
    assert len(KINDS["tasks"].questions.asked_of(a_task, (), "all")) == 1
