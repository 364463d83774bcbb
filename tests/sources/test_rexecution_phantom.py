"""The synthetic twin of a task set: same seed same bytes, the layout, and figures that can be worked out."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from reveal_bench.kinds.tasks.records import CATEGORIES, TAGS, rated_answers, rating_array
from reveal_bench.metrics.ordinal import CRITERIA
from reveal_bench.phantom.rexecution import (
    ANSWERED,
    DRAWS,
    MODELS,
    READERS,
    _category,
    _kernel,
    _visit,
    draw_ratings,
    score_distribution,
    write_rexecution,
)
from reveal_bench.phantom.rexecution_text import TOPICS, Course
from tests.conftest import files_of


def rows_of(data: bytes) -> list[dict[str, str]]:
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_rexecution(tmp_path / name, n_tasks=4, seed=seed, long_side=64)
    a, b, c = (files_of(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c


def test_a_task_does_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    for name, n in (("few", 3), ("many", 6)):
        write_rexecution(tmp_path / name, n_tasks=n, seed=0, long_side=64, traps=False)
    few, many = files_of(tmp_path / "few"), files_of(tmp_path / "many")
    pictures = [name for name in few if name.endswith(".jpg")]
    assert len(pictures) >= 3
    assert all(few[name] == many[name] for name in pictures)
    for name, n in (("tasks.csv", 3), ("ratings.csv", len(rows_of(few["ratings.csv"])))):
        assert rows_of(few[name]) == rows_of(many[name])[:n]


def test_the_layout_is_that_of_mimic(tmp_path: Path) -> None:
    counts = write_rexecution(tmp_path / "plain", n_tasks=3, long_side=64, traps=False)
    names = files_of(tmp_path / "plain")
    tree = "mimic-cxr-jpg"
    pictures = [name for name in names if name.endswith(".jpg")]
    assert counts == {"tasks": 3, "films": len(pictures), "ratings": len(rows_of(names["ratings.csv"]))}
    path = rf"{tree}/files/p(1\d)/p\1\d{{6}}/s5\d{{7}}/[0-9a-f]{{8}}(-[0-9a-f]{{8}}){{4}}\.jpg"
    assert all(re.fullmatch(path, name) for name in pictures)
    assert set(names) - set(pictures) == {
        "SYNTHETIC.txt", "tasks.csv", "ratings.csv", f"{tree}/SYNTHETIC.txt", f"{tree}/IMAGE_FILENAMES",
        *(f"{tree}/mimic-cxr-2.0.0-{role}.csv" for role in ("metadata", "split", "chexpert", "negbio")),
    }  # fmt: skip
    assert names[f"{tree}/IMAGE_FILENAMES"].decode().split() == [
        f"files/p{r['subject_id'][:2]}/p{r['subject_id']}/s{r['study_id']}/{r['dicom_id']}.jpg"
        for r in rows_of(names[f"{tree}/mimic-cxr-2.0.0-metadata.csv"])
    ]


def test_the_traps_are_there(tmp_path: Path) -> None:
    write_rexecution(tmp_path, n_tasks=21, long_side=64)
    names = files_of(tmp_path)
    tree = "physionet.org/files/mimic-cxr-jpg/2.1.0"
    metadata = rows_of(names[f"{tree}/mimic-cxr-2.0.0-metadata.csv.gz"])
    pictures = {name.rsplit("/", 1)[1].removesuffix(".jpg") for name in names if name.endswith(".jpg")}
    assert len({row["dicom_id"] for row in metadata} - pictures) == 3
    assert {row["ViewPosition"] for row in metadata} >= {"LL", "LATERAL", "AP", "PA", "RAO"}
    assert min(len(row["StudyTime"].split(".")[0]) for row in metadata) < 6 == 6
    assert f"{tree}/index.html" in names
    tasks = rows_of(names["tasks.csv"])
    assert any("\n" in task["prompt"] for task in tasks)
    assert any(task["study_id"].startswith("s") for task in tasks)
    assert len({row["subject_id"] for row in metadata if row["dicom_id"] in pictures}) == 21 - 2  # task 10 and 20
    with Image.open(tmp_path / next(name for name in names if name.endswith(".jpg"))) as picture:
        histogram = np.array(picture.convert("L").histogram())
    assert abs(np.cumsum(histogram)[127] / histogram.sum() - 0.5) < 0.1  # equalised


def test_shares_are_those_of_the_paper() -> None:
    drawn = [_category(j, seed=3) for j in range(1000)]
    counts = Counter(category for category, _ in drawn)
    assert {name: round(counts[name] / 10) for name in CATEGORIES} == dict(zip(CATEGORIES, (26, 63, 11), strict=True))
    assert 105 <= sum(temporal for _, temporal in drawn) <= 117


def test_every_prior_study_is_earlier() -> None:
    for j in range(500):
        (now, _), (before, _) = (_visit([], [], j, which, seed=1).taken for which in (0, 1))
        assert before[:6] == now[:6]
        assert before < now


def test_answers_agree_with_what_was_drawn(tmp_path: Path) -> None:
    """The labels of the tree, written from the drawing, are what the reference answer says of each finding."""
    write_rexecution(tmp_path, n_tasks=24, long_side=64, traps=False)
    names = files_of(tmp_path)
    labels = {row["study_id"]: row for row in rows_of(names["mimic-cxr-jpg/mimic-cxr-2.0.0-chexpert.csv"])}
    n_present = 0
    for task in rows_of(names["tasks.csv"]):
        boxed = {box["label"] for box in json.loads(task["reference_boxes"])} - {"Heart"}
        for finding in ("Pleural Effusion", "Pneumothorax", "Cardiomegaly", "Atelectasis", "Edema"):
            if f"No {finding.lower()}." in task["reference_answer"]:
                assert labels[task["study_id"]][finding] == ""
                assert finding not in boxed
            elif f"{finding}:" in task["reference_answer"]:
                assert labels[task["study_id"]][finding] == "1.0"
                n_present += 1
        assert all(label == "Airspace Opacity" or labels[task["study_id"]][label] == "1.0" for label in boxed)
    assert n_present >= 5


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (0, 0, "absent on both studies"), (0, 1, "new since"), (1, 0, "no longer seen"), (1, 1.2, "about as before"),
        (1, 1.3, "larger"), (1, 0.79, "smaller"),
    ],
)  # fmt: skip
def test_comparisons(before: float, now: float, words: str) -> None:
    assert words in Course(before, now).describe()


def test_topics_are_complete() -> None:
    assert {topic.category for topic in TOPICS} == set(CATEGORIES)
    assert all(set(topic.tags) <= set(TAGS) for topic in TOPICS)
    assert all(topic.prompts and topic.indications and topic.findings for topic in TOPICS)


@pytest.fixture(scope="module")
def many_ratings() -> list[npt.NDArray[np.float64]]:
    """Return the two readers' scores of the tasks that both of them read: every fourth of 4,000."""
    ratings = draw_ratings([(f"t{j}", True) for j in range(4_000)], seed=5)
    answers = [answer for answer in rated_answers(ratings) if int(answer[0][1:]) % 4 == 0]
    return [rating_array(ratings, reader=reader, answers=answers) for reader in READERS]


def expected_kappa(criterion: str) -> float:
    """Return the quadratic-weighted kappa of the two readers over all models' answers, for infinitely many tasks."""
    answering = {model: ANSWERED[model] for model in MODELS}
    if criterion in CRITERIA[4:]:
        answering = {model: ANSWERED[model] * share for model, share in DRAWS.items()}
    total = sum(answering.values())
    true = sum(
        (share / total * score_distribution(model, criterion) for model, share in answering.items()), np.zeros(5)
    )
    first, second = (_kernel(error) for error in READERS.values())
    joint = first.T @ np.diag(true) @ second
    distance = (np.arange(5)[:, None] - np.arange(5)) ** 2
    by_chance = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float(1 - (distance * joint).sum() / (distance * by_chance).sum())


@pytest.mark.parametrize("criterion", CRITERIA)
def test_readers_err_as_often_as_they_say(many_ratings: list[npt.NDArray[np.float64]], criterion: str) -> None:
    """4,000 tasks: kappa by scikit-learn near the value worked out from the error rates."""
    from sklearn.metrics import cohen_kappa_score

    first, second = many_ratings
    pair = np.stack([first, second])[:, :, CRITERIA.index(criterion)]
    one, two = pair[:, ~np.isnan(pair).any(axis=0)]
    assert len(one) > 800
    kappa = cohen_kappa_score(one, two, labels=[1, 2, 3, 4, 5], weights="quadratic")
    assert kappa == pytest.approx(expected_kappa(criterion), abs=0.05)


def test_true_scores_have_their_distribution() -> None:
    for model, shift in MODELS.items():
        mean = score_distribution(model, "language") @ np.arange(1, 6)
        assert score_distribution(model, "language").sum() == pytest.approx(1)
        assert mean == pytest.approx(4.0 + shift / 2, abs=0.25)


@pytest.mark.parametrize("options", [{"n_tasks": 0}, {"long_side": 10}, {"long_side": 9000}])
def test_numbers_out_of_range(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"`n_tasks` must be at least 1|`long_side` must be in"):
        write_rexecution(tmp_path / "out", **options)


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(ValueError, match="`out` must be a new or empty folder"):
        write_rexecution(tmp_path, n_tasks=1)
