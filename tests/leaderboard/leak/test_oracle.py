"""Answers to uploads do not depend on what is right: equal bytes, the same work, until a score is released.

The board of images asks for every finding of every image, so half of its questions have no reference. A file that asks
about a question with one, and a file that asks about a question without, must not be told apart by anything but a
released figure.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization import scoring
from reveal_bench.kinds.localization.records import LocalizationPrediction
from reveal_bench.masks import Rle, encode_mask, pack_masks
from tests.leaderboard.conftest import ASKING, wait_until
from tests.leaderboard.leak.answers import metadata, points, present, with_line
from tests.leaderboard.leak.deployment import Deployment, deployed
from tests.leaderboard.leak.hospital import FIRST, IMAGES, LABELS, SIZE, STUDIES, Hospital

pytestmark = pytest.mark.processes
VARYING = re.compile(
    rb'"(?:id|created_at|updated_at|at|queue_position|expected_seconds|started_at)":(?:"[^"]*"|[0-9.]+|null)|[0-9a-f]{32}'
)
"""What differs between any two submissions: ids, times, places in the queue."""


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    root = tmp_path_factory.mktemp("oracle")
    hospital = Hospital(root / "hospital", n_images=40, n_studies=40, versions=(FIRST,)).build()
    with deployed(hospital, root, "[quota]\nper_day = 100\ntotal = 100\n") as running:
        yield running


def question(hospital: Hospital, *, is_positive: bool) -> tuple[int, str, str]:
    """(line, image, finding) of a question whose finding is there, or is not; of images with equally long names."""
    line = 0
    for record in hospital.images:
        for finding, status in record.label_status.items():
            line += 1
            if finding == "Edema" and bool(status) == is_positive:
                return line, record.image_id, finding
    raise AssertionError("there is no such question")


CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a point outside": {"point": [9999, 1]},
    "a mask of another size": {"rle": {"size": [9, 9], "counts": "i1"}},
    "a mask that breaks off": {"rle": {"size": [48, 64], "counts": "o"}},
    "a finding of no benchmark": {"finding": "Scoliosis"},
    "an empty mask": {"rle": {"size": [48, 64], "counts": "PP3"}},
    "a score out of range": {"score": 2},
    "a cell that is none": {"cell": "Z99"},
}


def ask(board: Deployment, change: dict[str, Any], *, is_positive: bool) -> httpx.Response:
    """Send a file with one line changed, and answer as bytes in which that line's place and image are blanked."""
    line, image, _ = question(board.hospital, is_positive=is_positive)
    content = points(board.hospital, skill=0.0, seed=3)
    changed = with_line(content, line, lambda text: json.dumps({**json.loads(text), **change}))
    answer = board.wire.send(("mine.jsonl", changed), IMAGES, metadata("Asker", f"Model {is_positive}"))
    known = {str(line).encode(): b"LINE", image.encode(): b"IMAGE"}
    body = VARYING.sub(b"", answer.content)
    for text, name in known.items():
        body = re.sub(rb"\b" + re.escape(text) + rb"\b", name, body)
    answer._content = body
    return answer


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_question_with_a_reference_is_answered_as_one_without(board: Deployment, change: str) -> None:
    answers = [ask(board, CHANGES[change], is_positive=is_positive) for is_positive in (True, False)]
    bodies = [answer.content.replace(b"Model True", b"M").replace(b"Model False", b"M") for answer in answers]
    assert answers[0].status_code == answers[1].status_code
    assert bodies[0] == bodies[1]
    lengths = [dict(answer.headers) for answer in answers]
    for headers in lengths:
        for name in ("date", "location", "content-length"):
            headers.pop(name, None)
    assert lengths[0] == lengths[1]


def test_an_image_of_the_holdout_is_not_told_from_one_that_is_not_there(board: Deployment) -> None:
    """The manifest is public: what is not in it is unknown, whether it is the hospital's or made up."""
    known = {record.image_id for record in board.hospital.images}
    released = next(f"image-{i:04d}" for i in range(40) if f"image-{i:04d}" not in known)
    content = points(board.hospital, skill=0.0, seed=3)
    bodies = []
    for name in (released, "image-0041"):
        changed = with_line(content, 1, lambda text, name=name: re.sub(r"image-\d{4}", name, text))  # type: ignore[misc]
        answer = board.wire.send(("mine.jsonl", changed), IMAGES, metadata("Asker"))
        assert answer.status_code == 422
        bodies.append(re.sub(rb"image-\d{4}", b"IMAGE", answer.content))  # the hint names one of the manifest
    assert bodies[0] == bodies[1]


def labels_file(board: Deployment, *, is_right: bool) -> bytes:
    """Every study called for one label: rightly, or for the next one in the list that it does not have."""
    lines = []
    for study, truth in zip(board.hospital.studies, present(board.hospital), strict=True):
        chosen = next(i for i in range(len(LABELS)) if bool(truth[i]) == is_right)
        lines.append(json.dumps({"study_id": study.study_id, "labels": [LABELS[chosen]]}))
    return ("\n".join(lines) + "\n").encode()


def test_a_right_file_and_a_wrong_one_are_answered_alike_until_they_are_scored(board: Deployment) -> None:
    """The reports count what is in a file, label by label, so these are compared without their statistics."""
    ids, answers = [], []
    for team, is_right in (("Right", True), ("Wrong", False)):
        answer = board.wire.send(("mine.jsonl", labels_file(board, is_right=is_right)), STUDIES, metadata(team))
        assert answer.status_code == 202
        document = answer.json()
        document["report"].pop("statistics")
        answers.append(json.dumps(document).replace(team, "TEAM"))
        ids.append(document["id"])
    blank = [VARYING.sub(b"", answer.replace(": ", ":").encode()) for answer in answers]
    assert blank[0].replace(ids[0].encode(), b"") == blank[1].replace(ids[1].encode(), b"")
    for path in ("", "/events", "/receipt", "/receipt?part=final"):
        seen = [board.wire.get(f"/api/v1/submissions/{one}{path}") for one in ids]
        bodies = [VARYING.sub(b"", one.content.replace(b"Right", b"TEAM").replace(b"Wrong", b"TEAM")) for one in seen]
        assert seen[0].status_code == seen[1].status_code
        assert re.sub(rb"[0-9a-f]{64}", b"", bodies[0]) == re.sub(rb"[0-9a-f]{64}", b"", bodies[1]), path


def test_a_failure_says_the_same_of_a_right_file_and_a_wrong_one(board: Deployment) -> None:
    """With the holdout damaged both fail in the same words; mended, both are scored."""

    def ends(model: str) -> list[dict[str, Any]]:
        answers = [
            board.wire.send(("f.jsonl", labels_file(board, is_right=right)), STUDIES, metadata(team, model))
            for team, right in (("Right", True), ("Wrong", False))
        ]
        documents = board.wait(*(answer.json()["id"] for answer in answers))
        wait_until(lambda: board.wire.get("/readyz").json()["queued"] == 0, pause=ASKING)
        return documents

    board.hospital.damage(STUDIES)
    try:
        with board.worker():
            failed = ends("Again")
            board.hospital.repair(STUDIES)
            scored = ends("Once more")
    finally:
        board.hospital.repair(STUDIES)
    assert [document["status"] for document in failed + scored] == ["failed", "failed", "scored", "scored"]
    said = [[(e["to_status"], re.sub(r"INC-\w+", "INC", e["why"])) for e in one["events"]] for one in failed]
    assert said[0] == said[1]


# The same work


def unpacked_masks(monkeypatch: pytest.MonkeyPatch, hospital: Hospital, asked: list[tuple[str, str]]) -> Counter[str]:
    """How often scoring unpacks each mask of a file that has one detailed mask for each question asked."""
    unpacked: Counter[str] = Counter()

    def count(masks: Sequence[Rle], *more: Any) -> Any:
        unpacked.update(mask.counts for mask in masks)
        return pack_masks(masks, *more)

    monkeypatch.setattr(scoring, "pack_masks", count)
    noise = np.random.default_rng(1).random(SIZE) < 0.5
    detailed = encode_mask(noise)
    predictions = [LocalizationPrediction(image, finding, mask=detailed) for image, finding in asked]
    scoring.score_localization(predictions, hospital.images, findings=CHEXLOCALIZE_FINDINGS, asks="all")
    return Counter({detailed.counts: unpacked[detailed.counts]})


def test_every_mask_is_unpacked_whether_or_not_there_is_a_reference(
    board: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scorer that passed over masks without a reference would tell by its time which those are."""
    images = board.hospital.images
    for finding in CHEXLOCALIZE_FINDINGS[1:4]:
        positive = [(r.image_id, finding) for r in images if r.label_status[finding]][:5]
        negative = [(r.image_id, finding) for r in images if not r.label_status[finding]][:5]
        n = min(len(positive), len(negative))
        assert n > 0
        work = [unpacked_masks(monkeypatch, board.hospital, chosen[:n]) for chosen in (positive, negative)]
        assert work[0] == work[1]
        assert list(work[0].values()) == [n]
