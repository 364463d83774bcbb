"""Contents of a gallery folder: outcomes of scored rows, masks that are the references', and nothing of a patient."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reveal_bench.evaluation.score import LintError
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.cases import Case, CaseAnswer
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyRecord
from reveal_bench.kinds.findings.scoring import score_studies
from reveal_bench.kinds.images import StudyImage
from reveal_bench.kinds.localization.records import Annotation, LocalizationRecord
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.kinds.tasks.records import AnswerBox, TaskAnswer, TaskRecord
from reveal_bench.masks import decode_mask, encode_mask
from reveal_bench.viewer.gallery import CaseSource, _answers_to, _mask, _results, named_files, prepare_gallery
from tests.conftest import World
from tests.viewer.gallery_sample import GallerySample


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_index_has_every_case_with_the_outcomes_of_its_rows(sample: GallerySample) -> None:
    index = read(sample.gallery / "gallery.json")
    assert (index["benchmark"], index["split"], index["outcomes"]) == ("chexlocalize", "released", ["hit", "miss"])
    assert index["systems"] == ["Right", "Wrong"]
    result = {
        (case["id"], index["groups"][number], results) for case in index["cases"] for number, results in case["results"]
    }
    assert result == {(one.image_id, finding, "+-") for one in sample.records for finding in one.asked("present")}
    asked = [bool(case["results"]) for case in index["cases"]]
    assert asked == sorted(asked, reverse=True)  # cases with findings come first
    assert {case["id"] for case in index["cases"]} == {one.image_id for one in sample.records}


def test_a_case_has_its_marks_in_shares_and_its_film_without_metadata(sample: GallerySample) -> None:
    case = read(sample.gallery / "cases" / "0.json")
    (record,) = [one for one in sample.records if one.image_id == case["id"]]
    finding = case["groups"][0]
    (mark, *_) = [one for one in case["marks"]["Reference"] if one["group"] == finding]
    reference = record.reference(finding)
    assert reference is not None
    assert reference.rle is not None
    drawn = mark["masks"][0]
    flat = np.repeat(np.arange(len(drawn["runs"])) % 2 == 1, drawn["runs"])
    assert np.array_equal(flat.reshape(drawn["height"], drawn["width"]), decode_mask(reference.rle))  # it is small
    right, wrong = (case["answers"][name][0] for name in ("Right", "Wrong"))
    assert (right["words"], wrong["words"]) == ("hit", "miss")
    assert wrong["marks"][0]["points"] == [[round(0.5 / record.width, 5), round(0.5 / record.height, 5)]]
    with Image.open(sample.gallery / case["films"][0]["file"]) as film:
        assert (film.size, film.mode, film.getexif()) == ((record.width, record.height), "L", {})
    texts = "".join(path.read_text(encoding="utf-8") for path in sample.gallery.rglob("*.json"))
    assert "patient_id" not in texts
    assert "study_id" not in texts


def test_a_large_mask_is_made_smaller_and_a_pixel_of_it_stays() -> None:
    mask = np.zeros((2048, 1024), bool)
    mask[1000, 500] = True
    drawn = _mask(encode_mask(mask))
    assert (drawn["width"], drawn["height"]) == (256, 512)  # a quarter
    assert drawn["runs"] == [250 * 256 + 125, 1, 512 * 256 - 250 * 256 - 126]


def test_of_few_cases_each_has_something_to_find_and_films_are_no_larger_than_said(
    sample: GallerySample, tmp_path: Path
) -> None:
    assert prepare_gallery(CaseSource(sample.public, "released", {}, most=2, max_side=32), tmp_path / "out") == 2
    index = read(tmp_path / "out" / "gallery.json")
    assert all(case["results"] for case in index["cases"])
    with Image.open(tmp_path / "out" / "films" / "0-0.jpg") as film:
        assert max(film.size) == 32


def test_what_is_refused_leaves_nothing(sample: GallerySample, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="references are public"):
        prepare_gallery(CaseSource(sample.public, "holdout", {}), out)
    with pytest.raises(ValueError, match="references are public"):
        prepare_gallery(CaseSource(sample.private, "holdout", {}), out)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"image_id": "nobody"}\n')
    with pytest.raises(LintError):
        prepare_gallery(CaseSource(sample.public, "released", {"Bad": bad}), out)
    assert list(tmp_path.iterdir()) == [bad]
    out.mkdir()
    (out / "mine.txt").write_text("kept")
    with pytest.raises(ValueError, match="new or empty"):
        prepare_gallery(CaseSource(sample.public, "released", {}), out)


def test_withheld_images_are_blank_frames_for_their_owner(world: World) -> None:
    """`view` shows references and answers at their positions, and says that the images are withheld."""
    source = CaseSource(world.folder, "released", {}, private=True, max_side=100, blank=True)
    case = source.cases[0]
    document = json.loads(source.read("cases/0.json") or b"")
    assert ["1 image withheld", "blank frames of the same size"] in document["told"]
    assert document["marks"]
    with Image.open(io.BytesIO(source.read("films/0-0.jpg") or b"")) as frame:
        scale = min(1, 100 / max(case.films[0].width, case.films[0].height))
        assert frame.size == (round(case.films[0].width * scale), round(case.films[0].height * scale))
        low, high = frame.convert("L").getextrema()
    assert low == high


def test_pictures_that_are_withheld_cannot_be_looked_at(world: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is withheld"):
        prepare_gallery(CaseSource(world.folder, "released", {}), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_systems_are_named_by_hand_or_by_their_files(tmp_path: Path) -> None:
    path = tmp_path / "net=1.jsonl"
    path.write_text("")
    assert named_files([f"Net={tmp_path / 'net=1.jsonl'}"][:0]) == {}
    plain = tmp_path / "net.jsonl"
    plain.write_text("")
    assert named_files([f"Net L={plain}", str(plain)]) == {"Net L": plain, "net": plain}
    run = tmp_path / "run"
    run.mkdir()
    (run / "predictions.jsonl").write_text("")
    assert named_files([str(run)]) == {"run": run / "predictions.jsonl"}
    (run / "predictions.jsonl").rename(run / "predictions-1.jsonl")
    (run / "predictions-2.jsonl").write_text("")
    (run / "run.json").write_text('{"epochs": 2}')
    assert named_files([str(run)]) == {"run": run / "predictions-1.jsonl"}  # the first epoch, as in `score`
    twins = [tmp_path / folder / "net.jsonl" for folder in ("a", "b")]  # as a shell's */net.jsonl names them
    for twin in twins:
        twin.parent.mkdir()
        twin.write_text("")
    assert named_files([*map(str, twins), f"net={plain}"]) == {"a/net": twins[0], "b/net": twins[1], "net": plain}
    with pytest.raises(ValueError, match="must have different names"):
        named_files([str(plain), f"net={plain}"])
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl does not exist$"):
        named_files([f"a={tmp_path / 'none.jsonl'}"])


def test_a_study_is_right_where_its_labels_are_called_and_wrong_calls_count() -> None:
    labels = ("Edema", "Nodule", "Normal")
    study = StudyRecord("s", "p", ("Edema", "Nodule"), "three_of_three", (StudyImage("i", "PA", 8, 4),))
    inputs = [FindingsPrediction("s", probabilities={"Edema": 0.9, "Nodule": 0.2, "Normal": 0.5})]
    rows = score_studies(inputs, [study], labels=labels, thresholds=0.5)
    kind = KINDS["findings"]
    (answers,) = kind.display.case_answers(inputs, [study], rows, ScoringOptions()).values()
    assert [(one.group, one.is_hit, one.words) for one in answers] == [
        ("Edema", True, "called, probability 0.90"),
        ("Nodule", False, "not called, probability 0.20"),
        ("Normal", False, "called, probability 0.50"),
    ]
    case = kind.display.case(study)
    assert case.groups == ("Edema", "Nodule")
    assert case.facts == (("Reference labels", "Edema, Nodule"), ("Agreement", "three of three"))
    silent = score_studies([], [study], labels=labels)
    unanswered = kind.display.case_answers([], [study], silent, ScoringOptions())["s"]
    assert [(one.is_hit, one.words) for one in unanswered] == [
        (False, "no answer"), (False, "no answer"), (True, "no answer"),
    ]  # fmt: skip


def test_what_is_not_there_is_shown_where_a_system_called_it_and_the_others_were_right() -> None:
    case = Case("s", (), ("Edema",), {})
    result = {"A": ("Edema", "Nodule"), "B": ("Edema",)}
    systems = {
        name: {"s": [CaseAnswer(one, (one in called) == (one == "Edema"), "") for one in ("Edema", "Nodule", "Normal")]}
        for name, called in result.items()
    }
    visible = {
        name: [(one.group, one.is_hit) for one in answers] for name, answers in _answers_to(case, systems).items()
    }
    assert visible == {"A": [("Edema", True), ("Nodule", False)], "B": [("Edema", True), ("Nodule", True)]}


def test_an_answer_to_a_task_is_shown_with_its_boxes_on_their_film_and_not_judged() -> None:
    spacing: dict[str, Any] = {"spacing_mm": (0.5, 0.25), "spacing_source": "pixel_spacing"}
    images, prior = (StudyImage("i", "PA", 8, 4, **spacing),), (StudyImage("before", "PA", 8, 4),)
    task = TaskRecord("t", "s", "p", "What is new?", "diagnosis_support", images, prior, reference_answer="A nodule.")
    answer = TaskAnswer("t", "None.", (AnswerBox("before", "heart", (1.0, 1.0, 2.0, 2.0)),))
    kind = KINDS["tasks"]
    ((inputs,),) = kind.display.case_answers([answer], [task], None, ScoringOptions()).values()
    assert (inputs.group, inputs.is_hit, inputs.words) == ("Diagnosis support", None, "None.")
    assert [(mark.film, mark.boxes) for mark in inputs.marks] == [(1, ((1.0, 1.0, 2.0, 2.0),))]
    case = kind.display.case(task)
    assert [(film.image_id, film.is_prior) for film in case.films] == [("i", False), ("before", True)]
    assert [film.spacing_mm for film in case.films] == [(0.5, 0.25), None]
    assert case.facts == (("Prompt", "What is new?"), ("Reference answer", "A nodule."))


def test_each_single_reader_has_marks_of_their_own_and_what_only_they_drew_can_be_looked_up() -> None:
    drawn = [
        Annotation("Nodule", "individual", None, boxes_xywh=((0, 0, 2, 2),), area_px=4, reader_id="R10"),
        Annotation("Nodule", "individual", None, boxes_xywh=((1, 0, 2, 2),), area_px=4, reader_id="R2"),
        Annotation("Edema", "ground_truth", None, boxes_xywh=((0, 0, 1, 1),), area_px=1),
    ]
    record = LocalizationRecord("i", "p", "s", "PA", 8, 4, {"Nodule": None, "Edema": 1}, tuple(drawn))
    case = KINDS["localization"].display.case(record)
    boxes = {name: [mark.boxes for mark in marks] for name, marks in case.marks.items()}
    assert list(boxes.items()) == [
        ("Reference", [((0, 0, 1, 1),)]), ("Reader R2", [((1, 0, 2, 2),)]), ("Reader R10", [((0, 0, 2, 2),)]),
    ]  # fmt: skip
    assert (case.groups, case.named) == (("Edema",), ("Edema", "Nodule"))
    assert _results(case, {"A": [CaseAnswer("Edema", True, "hit")]}, ["Edema", "Nodule"]) == [[0, "+"], [1, "."]]


def test_a_thumbnail_is_small(sample: GallerySample) -> None:
    data = (sample.gallery / "thumbnails" / "0.jpg").read_bytes()
    assert max(Image.open(io.BytesIO(data)).size) <= 240
