"""Fingerprints: the same answers have one, nearly the same answers nearly the same sketch; and signs for moderators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from reveal_leaderboard.release.fingerprints import (
    Fingerprint,
    fingerprint,
    is_near,
    similarity,
)

from reveal_bench.kinds import KINDS
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, ManifestRow
from reveal_bench.masks import encode_mask

KEY = b"0123456789abcdef"
LABELS = ("Edema", "Mass", "Nodule")
STUDIES = StudyManifest("reveal-cxr", "1", "holdout", LABELS, tuple(f"s{i}" for i in range(400)))
IMAGES = ImageManifest(
    "chexlocalize",
    "1",
    "holdout",
    8,
    ("Edema", "Mass"),
    {f"i{i}": ManifestRow(f"i{i}", f"s{i}", "FRONTAL", 160, 320, ("Edema", "Mass")) for i in range(200)},
)


def of_labels(seed: int = 0, share: float = 0.3) -> list[FindingsPrediction]:
    rng = np.random.default_rng(seed)
    return [
        FindingsPrediction(study, tuple(label for label in LABELS if rng.random() < share)) for study in STUDIES.studies
    ]


def of_probabilities(seed: int = 0) -> list[FindingsPrediction]:
    rng = np.random.default_rng(seed)
    return [
        FindingsPrediction(study, probabilities={label: float(rng.random()) for label in LABELS})
        for study in STUDIES.studies
    ]


def of_points(seed: int = 0) -> list[LocalizationPrediction]:
    rng = np.random.default_rng(seed)
    return [
        LocalizationPrediction(image, finding, points=((float(rng.random() * 160), float(rng.random() * 320)),))
        for image, finding in IMAGES.asked_pairs()
    ]


def square(x: int, y: int, side: int, *, hole: bool = False) -> LocalizationPrediction:
    mask = np.zeros((320, 160), bool)
    mask[y : y + side, x : x + side] = True
    if hole:
        mask[y + 1, x + 1] = False
    return LocalizationPrediction("i0", "Edema", mask=encode_mask(mask))


def spread(one: LocalizationPrediction) -> list[LocalizationPrediction]:
    """The same for every case."""
    return [replace(one, image_id=image, finding=finding) for image, finding in IMAGES.asked_pairs()]


def marked(predictions: Sequence[FindingsPrediction], key: bytes = KEY) -> Fingerprint:
    return fingerprint(predictions, STUDIES, key)


def test_order_lines_and_absent_studies_do_not_matter() -> None:
    predictions = of_labels()
    shuffled = [replace(p, line=i, labels=(p.labels or ())[::-1]) for i, p in enumerate(predictions[::-1])]
    named = [p for p in predictions if p.labels]
    assert len(named) < len(predictions)
    assert marked(predictions) == marked(shuffled) == marked(named)


def test_a_confidence_is_not_scored_and_does_not_matter() -> None:
    predictions = of_points()
    sure = [replace(p, score=0.5, line=7) for p in predictions[::-1]]
    assert fingerprint(predictions, IMAGES, KEY) == fingerprint(sure, IMAGES, KEY)


def test_one_answer_changes_the_content() -> None:
    predictions = of_labels()
    flipped = [replace(predictions[0], labels=() if predictions[0].labels else ("Edema",)), *predictions[1:]]
    assert marked(flipped).content != marked(predictions).content
    moved = of_points()
    moved[3] = replace(moved[3], points=((moved[3].points[0][0] + 1e-3, moved[3].points[0][1]),))
    assert fingerprint(moved, IMAGES, KEY).content != fingerprint(of_points(), IMAGES, KEY).content


def test_labels_and_probabilities_of_the_same_calls_differ() -> None:
    """Only the latter have an AUROC."""
    labels = [FindingsPrediction("s0", ("Edema",))]
    certain = [FindingsPrediction("s0", probabilities={"Edema": 1.0, "Mass": 0.0, "Nodule": 0.0})]
    assert marked(labels).content != marked(certain).content


def test_the_content_is_exact_to_the_last_bit() -> None:
    """The float below 0.5 is another decision at that threshold, so it is another content."""
    below = float(np.nextafter(0.5, 0))
    first, *others = of_probabilities()

    def content(probability: float) -> str:
        probabilities = dict.fromkeys(LABELS, probability)
        return marked([FindingsPrediction(first.study_id, probabilities=probabilities), *others]).content

    assert content(below) != content(0.5)


def test_the_key_is_in_content_and_sketch() -> None:
    first, other = marked(of_labels()), marked(of_labels(), b"another key of mine")
    assert first.content != other.content
    assert similarity(first, other) < 0.1
    with pytest.raises(ValueError, match="`key` must have at least 16 bytes, got 5"):
        marked(of_labels(), b"short")


def test_the_benchmark_is_in_the_content() -> None:
    elsewhere = fingerprint(of_labels(), replace(STUDIES, benchmark="other"), KEY)
    assert elsewhere.content != marked(of_labels()).content


def test_a_sketch_is_128_numbers_of_32_bits() -> None:
    sketch = marked(of_labels()).sketch
    assert len(sketch) == 128
    assert all(type(x) is int and 0 <= x < 2**32 for x in sketch)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.5])
def test_similarity_is_the_share_of_equal_answers(share: float) -> None:
    """A share of the studies called for "Edema" alone is exchanged for others."""
    n = round(200 * share)
    one = [FindingsPrediction(f"s{i}", ("Edema",)) for i in range(200)]
    other = [FindingsPrediction(f"s{i}", ("Edema",)) for i in range(n, 200 + n)]
    # Jaccard index j = (1 - share) / (1 + share), from 128 hashes: standard error sqrt(j (1 - j) / 128), times the
    # slope 2 / (1 + j)^2; four of them are allowed.
    j = (1 - share) / (1 + share)
    error = 2 / (1 + j) ** 2 * (j * (1 - j) / 128) ** 0.5
    assert similarity(marked(one), marked(other)) == pytest.approx(1 - share, abs=4 * error + 1e-12)


@pytest.mark.parametrize("make", [of_labels, of_probabilities])
def test_two_models_of_their_own_are_not_near(make: object) -> None:
    assert callable(make)
    assert similarity(marked(make(0)), marked(make(1))) < 0.6
    assert not is_near(marked(make(0)), marked(make(1)))


@pytest.mark.parametrize("make", [of_labels, of_probabilities])
def test_a_few_changed_studies_are_near(make: object) -> None:
    assert callable(make)
    predictions = make(0)
    changed = [*make(1)[:4], *predictions[4:]]  # 1% of the studies
    assert marked(predictions).content != marked(changed).content
    assert is_near(marked(predictions), marked(changed))


def test_two_models_that_rarely_call_anything_are_not_near() -> None:
    """They agree in nine answers of ten, as any such models do."""
    one, other = of_labels(0, 0.05), of_labels(1, 0.05)
    assert not is_near(marked(one), marked(other))


def test_points_that_tremble_are_near() -> None:
    points = of_points()
    trembling = [replace(p, points=((p.points[0][0] + 0.01, p.points[0][1] + 0.01),)) for p in points]
    a, b = (fingerprint(predictions, IMAGES, KEY) for predictions in (points, trembling))
    assert a.content != b.content
    assert is_near(a, b)
    assert not is_near(a, fingerprint(of_points(1), IMAGES, KEY))


def test_nothing_predicted_has_no_sketch() -> None:
    nothing = marked([])
    assert nothing.sketch == ()
    assert is_near(nothing, marked([FindingsPrediction("s0", ())]))
    assert not is_near(nothing, marked(of_labels()))


SIGNS: dict[str, tuple[Sequence[Any], ImageManifest | StudyManifest, str | None]] = {
    "a model's labels": (of_labels(), STUDIES, None),
    "a model's probabilities": (of_probabilities(), STUDIES, None),
    "a model's points": (of_points(), IMAGES, None),
    "no label at all": ([FindingsPrediction(s, ()) for s in STUDIES.studies], STUDIES, "No label is called"),
    "no study": ([], STUDIES, "No label is called in any study."),
    "no case": ([], IMAGES, "Nothing is predicted."),
    "all the same": ([FindingsPrediction(s, ("Mass",)) for s in STUDIES.studies], STUDIES, "Every study has the same"),
    "always called": (
        [replace(p, labels=(*(x for x in p.labels or () if x != "Mass"), "Mass")) for p in of_labels()],
        STUDIES,
        "Called in every study: Mass.",
    ),
    "one place": (spread(LocalizationPrediction("i0", "Edema", points=((80.0, 100.0),))), IMAGES, "the same place"),
    "many points": (
        [replace(p, points=p.points + tuple((float(x), 5.0) for x in range(4))) for p in of_points()],
        IMAGES,
        "4 points or more",
    ),
    "empty masks": (spread(square(0, 0, 0)), IMAGES, "Every mask is empty."),
    "rectangles": (spread(square(20, 20, 50)), IMAGES, "plain rectangles"),
    "drawn masks": (spread(square(20, 20, 50, hole=True)), IMAGES, None),
    "whole images": (
        spread(replace(square(0, 0, 1), mask=encode_mask(np.ones((320, 160), bool)))),
        IMAGES,
        "one mask in twenty covers the whole image",
    ),
    "whole boxes": (
        spread(LocalizationPrediction("i0", "Edema", box=(0.0, 0.0, 160.0, 320.0))),
        IMAGES,
        "one box in twenty covers the whole image",
    ),
}


@pytest.mark.parametrize("case", SIGNS)
def test_signs_for_moderators(case: str) -> None:
    predictions, manifest, sign = SIGNS[case]
    signs = KINDS[manifest.kind].release.signs(predictions, manifest)
    assert (sign is None) == (signs == [])
    assert sign is None or any(sign in text for text in signs)
