"""Few-shot examples: never the image or patient asked, tiers used up in order, answers as arithmetic gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.localization.records import (
    Annotation,
    LocalizationPrediction,
    LocalizationRecord,
    read_localization,
    read_manifest,
)
from reveal_bench.kinds.localization.scoring import score_localization
from reveal_bench.kinds.questions import Question
from reveal_bench.masks import pack_boxes, tight_box
from reveal_bench.models.answers import read_reply
from reveal_bench.models.questions import AskSettings, list_questions
from reveal_bench.models.shots import ShotPool, is_same_view
from tests.conftest import annotate, random_records

VIEWS = ("AP", "PA", "LATERAL", "FRONTAL", "UNKNOWN")
NEVER, RARE = "Support Devices", "Lung Lesion"
FRONTAL_GROUP = {"AP", "PA", "FRONTAL"}


def crowd(n: int, seed: int, *, patient: int, views: Sequence[str]) -> list[LocalizationRecord]:
    """Random images: three to a patient, of two studies; one finding never drawn, one once in a while."""
    rng = np.random.default_rng(seed)
    records = []
    for i, record in enumerate(random_records(rng, n)):
        patient_id = f"patient{patient + i // 3:05d}"
        study_id = f"{patient_id}_study{1 + (i % 3 == 2)}"
        left_out = {NEVER} | ({RARE} if i % 9 else set())
        records.append(
            replace(
                record,
                image_id=f"{study_id}_view{i % 3 + 1}_frontal",
                patient_id=patient_id,
                study_id=study_id,
                view=views[int(rng.integers(len(views)))],
                label_status={f: s if f not in left_out else 0 for f, s in record.label_status.items()},
                annotations=tuple(a for a in record.annotations if a.finding not in left_out),
            )
        )
    return records


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A validation split of all views, and a test split that knows FRONTAL and LATERAL alone, half of it private."""
    root = tmp_path_factory.mktemp("shots")
    test = crowd(54, 2, patient=100, views=("FRONTAL", "FRONTAL", "LATERAL"))
    build_folder(
        {"validation": iter(crowd(27, 1, patient=0, views=VIEWS)), "test": iter(test)},
        root / "public",
        BENCHMARKS["chexlocalize"],
        pixels="withhold",
        holdout=root / "vault",
        seed=3,
        synthetic=True,
    )
    return root / "public"


def few(shots: int = 3, *, split: str = "validation", seed: int = 0, **options: object) -> AskSettings:
    return AskSettings(style="few-shot", shots=shots, shots_split=split, seed=seed, **options)  # type: ignore[arg-type]


@cache
def references(folder: Path) -> dict[str, list[LocalizationRecord]]:
    return {split: read_localization(folder, split) for split in ("validation", "released")}


@cache
def tiers_by_hand(folder: Path, question: Question, shots_split: str) -> dict[int, dict[str, set[str]]]:
    """Tier -> patient -> images that may be shown, straight from the records of every split with references."""
    tiers: dict[int, dict[str, set[str]]] = {1: {}, 2: {}, 3: {}, 4: {}}
    everything = references(folder)
    patients = {record.image_id: record.patient_id for split in everything.values() for record in split}
    asked = question.image
    for split, records in everything.items():
        for record in records:
            # the ids of this world begin with the patient's, so that the holdout's are known here
            is_theirs = record.patient_id == patients.get(asked.image_id, asked.image_id.split("_")[0])
            if question.finding not in {a.finding for a in record.annotations} or is_theirs:
                continue
            views = {record.view, asked.view}
            same = "UNKNOWN" not in views and (len(views) == 1 or ("FRONTAL" in views and views <= FRONTAL_GROUP))
            tier = (1 if same else 3) + (split != shots_split)
            tiers[tier].setdefault(record.patient_id, set()).add(record.image_id)
    return tiers


@pytest.mark.parametrize(("k", "shots_split"), [(3, "validation"), (16, "validation"), (3, "released")])
def test_every_question_of_every_split_gets_what_the_rule_says(folder: Path, k: int, shots_split: str) -> None:
    studies = {
        row.image_id: row.study_id for split in read_folder_info(folder).splits
        for row in read_manifest(folder, split).rows.values()
    }  # fmt: skip
    pools = [ShotPool(folder, few(k, split=shots_split, seed=seed)) for seed in range(5)]
    seen_tiers, short = set(), 0
    for split in ("validation", "released", "holdout"):
        for question in list_questions(folder, split, few(k, split=shots_split)):
            tiers = tiers_by_hand(folder, question, shots_split)
            for pool in pools:
                shots = pool.pick(question)
                left = k
                used: set[str] = set()
                for tier, candidates in tiers.items():
                    mine = [shot for shot in shots if shot.tier == tier]
                    assert all(s.question.image.image_id in candidates.get(s.patient_id, ()) for s in mine)
                    assert len(mine) == min(left, len(set(candidates) - used))
                    left -= len(mine)
                    used |= set(candidates)
                assert [shot.tier for shot in shots] == sorted(shot.tier for shot in shots)
                assert len({shot.patient_id for shot in shots}) == len(shots)
                for shot in shots:
                    example = shot.question.image.image_id
                    assert example != question.image.image_id
                    assert example.split("_")[0] != question.image.image_id.split("_")[0]
                    assert studies[example] != studies[question.image.image_id]
                    assert shot.question.finding == question.finding
                    assert shot.split in ("validation", "released")
                seen_tiers |= {shot.tier for shot in shots}
                short += len(shots) < k
    assert seen_tiers == {1, 2, 3, 4}, "the world must reach every tier, or this test shows nothing of it"
    assert short > 0 or k == 3


def test_choice_depends_on_seed_and_question_alone(folder: Path) -> None:
    questions = list_questions(folder, "released", few())
    one, other = ShotPool(folder, few()), ShotPool(folder, few())
    forwards = {question.id: one.pick(question) for question in questions}
    assert {question.id: other.pick(question) for question in reversed(questions)} == forwards
    limited = list_questions(folder, "released", few(), limit=5)
    assert [ShotPool(folder, few()).pick(question) for question in limited] == [forwards[q.id] for q in limited]
    reseeded = ShotPool(folder, few(seed=1))
    changed = sum(reseeded.pick(question) != forwards[question.id] for question in questions)
    assert changed > len(questions) / 2


def test_fewer_examples_are_the_first_of_more(folder: Path) -> None:
    small, large = ShotPool(folder, few(2)), ShotPool(folder, few(5))
    for question in list_questions(folder, "validation", few()):
        assert small.pick(question) == large.pick(question)[:2]


def test_every_candidate_gets_its_turn(folder: Path) -> None:
    """Over many seeds each patient of the first tier is picked about as often: a share of 1/n, within 5 SD."""
    question = next(
        q for q in list_questions(folder, "released", few())
        if len(tiers_by_hand(folder, q, "validation")[1]) >= 4 and q.image.view == "FRONTAL"
    )  # fmt: skip
    images = sum(map(len, tiers_by_hand(folder, question, "validation")[1].values()))
    pool = ShotPool(folder, few(1))
    counts: dict[str, int] = {}
    for seed in range(600):
        pool._settings = few(1, seed=seed)  # the pool itself does not depend on the seed
        image = pool.pick(question)[0].question.image.image_id
        counts[image] = counts.get(image, 0) + 1
    expected = 600 / images
    assert len(counts) == images
    assert max(abs(count - expected) for count in counts.values()) < 5 * np.sqrt(expected)


def test_views() -> None:
    same = {(a, b) for a in VIEWS for b in VIEWS if is_same_view(a, b)}
    symmetric = {("AP", "FRONTAL"), ("FRONTAL", "AP"), ("PA", "FRONTAL"), ("FRONTAL", "PA")}
    assert same == {("AP", "AP"), ("PA", "PA"), ("LATERAL", "LATERAL"), ("FRONTAL", "FRONTAL")} | symmetric


def test_a_finding_without_examples_gets_none(folder: Path) -> None:
    asked = list_questions(folder, "released", few())[0]
    assert ShotPool(folder, few()).pick(replace(asked, finding=NEVER)) == ()


def test_the_only_patient_with_a_finding_gets_none(tmp_path: Path) -> None:
    out = build(tmp_path, [picture("p1", {"Edema": [(0, 0, 8, 8)]}), picture("p1", {"Edema": [(9, 9, 8, 8)]}, image=2)])
    assert [ShotPool(out, few()).pick(q) for q in list_questions(out, "validation", few())] == [(), ()]


def test_nothing_is_read_or_shown_without_shots(tmp_path: Path, folder: Path) -> None:
    question = list_questions(folder, "released", few())[0]
    assert ShotPool(tmp_path / "nowhere", AskSettings()).pick(question) == ()


@pytest.mark.parametrize(
    ("image_id", "finding", "message"),
    [("stranger", "Edema", "`question` must be about an image of the folder, got 'stranger'"),
     (None, None, "`question` must be about a finding to have examples")],
    ids=["image", "finding"],
)  # fmt: skip
def test_a_foreign_question_is_refused(folder: Path, image_id: str | None, finding: str | None, message: str) -> None:
    question = list_questions(folder, "released", few())[0]
    image = replace(question.image, image_id=image_id or question.image.image_id)
    with pytest.raises(ValueError, match=message):
        ShotPool(folder, few()).pick(replace(question, images=(image,), finding=finding))


@pytest.mark.parametrize("split", ["holdout", "nothing", None])
def test_a_split_without_references_is_refused(folder: Path, split: str | None) -> None:
    with pytest.raises(
        ValueError, match=r"`shots_split` must be a split with references in .*\(validation, released\)"
    ):
        ShotPool(folder, few(split=split))  # type: ignore[arg-type]


# What an example answers. Masks are given as boxes (x, y, width, height) that are filled.


def picture(
    patient: str, drawn: dict[str, list[tuple[int, int, int, int]]], *, size: tuple[int, int] = (64, 64),
    as_boxes: bool = False, image: int = 1, view: str = "AP",
) -> LocalizationRecord:  # fmt: skip
    annotations = []
    for finding, boxes in drawn.items():
        mask = pack_boxes([boxes], [size]).dense(0)
        annotation = annotate(finding, mask)
        if as_boxes:
            tight, area = tight_box(boxes), int(mask.sum())
            annotation = Annotation(finding, "ground_truth", None, (), tight, len(boxes), area, tuple(boxes))
        annotations.append(annotation)
    status = {finding: int(finding in drawn) for finding in CHEXLOCALIZE_FINDINGS}
    return LocalizationRecord(
        f"{patient}_{image}", patient, f"{patient}_s", view, size[1], size[0], status, annotations=tuple(annotations)
    )


def build(tmp_path: Path, records: list[LocalizationRecord]) -> Path:
    out = tmp_path / "out"
    build_folder({"validation": iter(records)}, out, BENCHMARKS["chexlocalize"], pixels="withhold", synthetic=True)
    return out


SQUARE_8 = [(16, 8, 8, 8)]
ANSWERS = [
    # An 8 x 8 block in 64 x 64: cell C2; depth 4 at offsets 3 and 4, the first is (19, 11), centre (19.5, 11.5)
    ("block", (64, 64), SQUARE_8, "C2", "19 11", "16 8 8 8"),
    # 128 -> 64: centre (9.75, 5.75) of the same block is nearest to (10, 6), which represents (20, 12) in the block
    ("halved", (128, 128), SQUARE_8, "B1", "10 6", "8 4 4 4"),
    # 64 x 128: the square is columns 32 to 96; half of the block is cut off
    ("cut", (64, 128), [(24, 0, 16, 8)], "A1", "3 3", "0 0 8 8"),
    # 128 x 64: rows 32 to 96; the block begins in row 88 and ends beyond
    ("cut-below", (128, 64), [(0, 88, 8, 16)], "A8", "3 59", "0 56 8 8"),
    # Two blocks in different cells: the larger share, 64 against 63 pixels
    ("larger", (64, 64), [(16, 8, 8, 8), (40, 40, 9, 7)], "C2", "19 11", "16 8 33 39"),
    # A1 has two strips of 2 rows (32 pixels), B1 a compact 4 x 8 (32): equal, but B1 is deeper
    ("tie-deepest", (64, 64), [(0, 0, 8, 2), (0, 5, 8, 2), (10, 0, 4, 8)], "B1", "11 1", "0 0 14 8"),
    # A1 and B1 have four rows of 8 each (32), C1 is deepest with 5 x 5 = 25: the first of the equal ones
    ("tie-first", (64, 64), [(0, y, 16, 1) for y in (0, 2, 4, 6)] + [(18, 1, 5, 5)], "A1", "20 3", "0 0 23 7"),
    # 64 x 65: the square begins at 0.5, so the pixels of column 0 are cut in half, and 8 becomes 7.5
    ("half-pixel", (64, 65), [(0, 0, 8, 8)], "A1", "3 3", "0 0 8 8"),
    # 256 -> 64: the deepest pixel (130, 101) is nearest to (33, 25), for (132, 100), outside; (32, 25) is (128, 100)
    ("rounded-out", (256, 256), [(129, 100, 3, 3), (128, 100, 1, 1)], "E4", "32 25", "32 25 1 1"),
    # One column of one pixel: no whole pixel hits it, the nearest is used; 28 of its rows are above row 128, 22 below
    ("thin", (256, 256), [(130, 100, 1, 50)], "E4", "33 25", "33 25 1 13"),
    ("corner", (256, 256), [(255, 255, 1, 1)], "H8", "63 63", "63 63 1 1"),
]  # fmt: skip


@pytest.mark.parametrize("as_boxes", [False, True], ids=["mask", "boxes"])
def test_answers(tmp_path: Path, as_boxes: bool) -> None:
    """Every case is a patient of one folder; a question of another patient gets them all as examples."""
    films = [picture(name, {"Edema": drawn}, size=size, as_boxes=as_boxes) for name, size, drawn, *_ in ANSWERS]
    out = build(tmp_path, [picture("asked", {"Edema": SQUARE_8}), *films])
    question = list_questions(out, "validation", few())[0]
    for form, column in (("cell", 3), ("point", 4), ("box", 5)):
        shots = ShotPool(out, few(16, form=form, side=256 if form == "cell" else 64)).pick(question)
        assert {shot.patient_id: shot.answer for shot in shots} == {case[0]: case[column] for case in ANSWERS}
        assert {shot.question.form for shot in shots} == {form}
        assert {s.patient_id: s.question.image.size for s in shots} == {case[0]: case[1] for case in ANSWERS}


def test_what_lies_outside_the_square_is_no_example(tmp_path: Path) -> None:
    beside = [(0, 0, 32, 64), (96, 0, 32, 64)]  # left and right of columns 32 to 96: the box around both is not
    out = build(tmp_path, [picture("p1", {"Edema": SQUARE_8}), picture("p2", {"Edema": beside}, size=(64, 128))])
    for form in ("cell", "point", "box"):
        for question in list_questions(out, "validation", few()):
            shots = ShotPool(out, few(form=form)).pick(question)
            assert [shot.patient_id for shot in shots] == (["p1"] if question.image.image_id == "p2_1" else [])


def test_pictures_with_the_same_pixels_are_not_shown(tmp_path: Path) -> None:
    twins = [picture(f"p{i}", {"Edema": SQUARE_8}) for i in (1, 2, 3)]
    twins[0], twins[1] = (replace(record, pixel_sha256="ab" * 32) for record in twins[:2])
    out = build(tmp_path, twins)
    first = list_questions(out, "validation", few())
    patients = {q.image.image_id: {s.patient_id for s in ShotPool(out, few()).pick(q)} for q in first}
    assert patients == {"p1_1": {"p3"}, "p2_1": {"p3"}, "p3_1": {"p1", "p2"}}


def test_a_patient_of_the_holdout_that_its_inputs_name_is_not_shown(tmp_path: Path) -> None:
    """Splits share no patient by construction; where both are known that is not relied on."""
    records = [picture("p1", {"Edema": SQUARE_8}), picture("p2", {"Edema": SQUARE_8})]
    private = [replace(picture("p9", {"Edema": SQUARE_8}), image_id="other", study_id="other")]
    build_folder(
        {"validation": iter(records), "holdout": iter(private)}, tmp_path / "out", BENCHMARKS["chexlocalize"],
        pixels="withhold", holdout=tmp_path / "vault", holdout_split="holdout", synthetic=True,
    )  # fmt: skip
    (question,) = list_questions(tmp_path / "out", "holdout", few())
    assert {s.patient_id for s in ShotPool(tmp_path / "out", few()).pick(question)} == {"p1", "p2"}
    (tmp_path / "out/holdout_inputs").mkdir()
    row = {"image_id": "other", "patient_id": "p2", "study_id": "other", "pixel_sha256": None}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "out/holdout_inputs/holdout-00000-of-00001.parquet")
    assert {s.patient_id for s in ShotPool(tmp_path / "out", few()).pick(question)} == {"p1"}


@pytest.mark.parametrize("form", ["cell", "point", "box"])
def test_what_examples_answer_is_right(films: Path, form: str) -> None:
    """Read back as a model's reply and scored against the masks: cells and points are hits, boxes near to theirs."""
    settings = few(16, form=form)
    pool, manifest = ShotPool(films, settings), read_manifest(films, "validation")
    shots = {
        shot.question.id: shot
        for question in list_questions(films, "test", settings)
        for shot in pool.pick(question)
        if shot.split == "validation"
    }
    predictions = []
    for shot in shots.values():
        text = f"{form.capitalize()}: {', '.join(shot.answer.split())}"
        reply = read_reply(text, shot.question, settings)
        assert reply.status == "answered", (text, reply.note)
        points = () if reply.point is None else (reply.point,)
        image_id, finding = shot.question.id.split("|")
        predictions.append(LocalizationPrediction(image_id, finding, points, reply.cell, reply.box))
    records = read_localization(films, "validation")
    rows = score_localization(predictions, records, findings=manifest.findings)
    kept = np.array([f"{i}|{f}" in shots for i, f in zip(rows.image_ids, rows.case_findings, strict=True)])
    assert kept.sum() == len(predictions) > 15
    metric, least = {"cell": ("grid_hit", 1.0), "point": ("point_hit", 1.0), "box": ("box_iou", 0.4)}[form]
    assert rows.values[metric][kept].min() >= least
