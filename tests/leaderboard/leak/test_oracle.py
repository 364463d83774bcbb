"""The real board's disclosure of labels over HTTP: none before a score is released, little through scores.

Answers to uploads do not depend on the reference: equal bytes, the same work. The board of images asks for every
finding of every image, so half of its questions have no reference. Files that change a question with a reference and
files that change one without must differ in nothing except a released score.

Five organizations share a model (AUROC 0.90 on every label) and all answers. Their gain is the F1 of their final calls
minus the F1 of the model alone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from reveal_leaderboard.release.rounding import Rounding
from reveal_leaderboard.settings import ReleasePolicy
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.metrics import f1_score, roc_auc_score

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.findings.lint import findings_to_jsonl
from reveal_bench.kinds.findings.records import FindingsPrediction
from reveal_bench.kinds.localization import scoring
from reveal_bench.kinds.localization.records import LocalizationPrediction
from reveal_bench.masks import Rle, encode_mask, pack_masks
from reveal_bench.metrics.bootstrap import MACRO
from tests.leaderboard.conftest import ACCEPTED, ASKING, wait_until
from tests.leaderboard.leak.answers import BoolArray, figures, metadata, of_calls, of_values, points, present, with_line
from tests.leaderboard.leak.deployment import Deployment, deployed
from tests.leaderboard.leak.hospital import FIRST, IMAGES, LABELS, SIZE, STUDIES, Hospital
from tests.leaderboard.probing import Answer, BudgetSpentError, FloatArray, Prober
from tests.leaderboard.test_probing_simulation import GuardedBoard, World

pytestmark = pytest.mark.processes
QUOTA = 3  # more than the default
SETTINGS = (
    f"[quota]\ntotal = {QUOTA}\nper_day = {QUOTA}\n[benchmarks.{IMAGES}.quota]\ntotal = 100\nper_day = 100\n"
    f"[exposure]\nclose_bits = 1000.0\n{ACCEPTED}"  # five teams use everything here, which would pause a board
)
MOST_GAINED = 0.05
FEWEST = 30
VARYING = re.compile(
    rb'"(?:id|created_at|updated_at|at|queue_position|expected_seconds|started_at)":(?:"[^"]*"|[0-9.]+|null)|[0-9a-f]{32}'
)
"""Fields that differ between any two submissions: ids, times, queue positions."""


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    root = tmp_path_factory.mktemp("oracle")
    hospital = Hospital(root / "hospital", n_images=80, n_studies=300, common=0.3, versions=(FIRST,)).build()
    with deployed(hospital, root, SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def working(board: Deployment) -> Iterator[Deployment]:
    """The same board with a worker, for the tests that wait for scores; they run last."""
    with board.worker():
        yield board


def question(hospital: Hospital, *, is_positive: bool) -> tuple[int, str, str]:
    """Return (line, image, finding) of a question with a present or absent finding; image names have one length."""
    line = 0
    for record in hospital.images:
        for finding, status in record.label_status.items():
            line += 1
            if finding == "Edema" and bool(status) == is_positive:
                return line, record.image_id, finding
    raise AssertionError("no such question")


CHANGES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a point outside": {"point": [9999, 1]},
    "a mask of another size": {"rle": {"size": [9, 9], "counts": "i1"}},
    "a mask that breaks off": {"rle": {"size": [48, 64], "counts": "o"}},
    "an unknown finding": {"finding": "Scoliosis"},
    "an empty mask": {"rle": {"size": [48, 64], "counts": "PP3"}},
    "a score out of range": {"score": 2},
    "an invalid cell": {"cell": "Z99"},
}


def ask(board: Deployment, change: dict[str, Any], *, is_positive: bool) -> httpx.Response:
    """Send a file with one changed line; return the answer with the line number and image blanked."""
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
def test_answer_does_not_depend_on_a_reference(board: Deployment, change: str) -> None:
    answers = [ask(board, CHANGES[change], is_positive=is_positive) for is_positive in (True, False)]
    bodies = [answer.content.replace(b"Model True", b"M").replace(b"Model False", b"M") for answer in answers]
    assert answers[0].status_code == answers[1].status_code
    assert bodies[0] == bodies[1]
    lengths = [dict(answer.headers) for answer in answers]
    for headers in lengths:
        for name in ("date", "location", "content-length"):
            headers.pop(name, None)
    assert lengths[0] == lengths[1]


def test_unlisted_and_nonexistent_images_get_the_same_answer(board: Deployment) -> None:
    """The manifest is public: an id outside it is unknown, whether it is the hospital's or invented."""
    known = {record.image_id for record in board.hospital.images}
    released = next(f"image-{i:04d}" for i in range(40) if f"image-{i:04d}" not in known)
    content = points(board.hospital, skill=0.0, seed=3)
    bodies = []
    for name in (released, "image-0041"):
        changed = with_line(content, 1, lambda text, name=name: re.sub(r"image-\d{4}", name, text))  # type: ignore[misc]
        answer = board.wire.send(("mine.jsonl", changed), IMAGES, metadata("Asker"))
        assert answer.status_code == 422
        bodies.append(re.sub(rb"image-\d{4}", b"IMAGE", answer.content))  # the hint names an image of the manifest
    assert bodies[0] == bodies[1]


def labels_file(board: Deployment, *, is_right: bool) -> bytes:
    """Return a file with one label per study: a present one if `is_right`, otherwise an absent one."""
    lines = []
    for study, truth in zip(board.hospital.studies, present(board.hospital), strict=True):
        chosen = next((i for i in range(len(LABELS)) if bool(truth[i]) == is_right), 0)
        lines.append(json.dumps({"study_id": study.study_id, "labels": [LABELS[chosen]]}))
    return ("\n".join(lines) + "\n").encode()


def test_right_and_wrong_files_get_equal_answers_before_scoring(board: Deployment) -> None:
    """Reports are compared without their statistics, which count a file's contents by label."""
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


# Equal work


def unpacked_masks(monkeypatch: pytest.MonkeyPatch, hospital: Hospital, asked: list[tuple[str, str]]) -> Counter[str]:
    """Return how often scoring unpacks each mask of a file with one detailed mask per question."""
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


def test_every_mask_is_unpacked_with_or_without_reference(board: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scorer that skipped masks without a reference would reveal them by its run time."""
    images = board.hospital.images
    for finding in CHEXLOCALIZE_FINDINGS[1:4]:
        positive = [(r.image_id, finding) for r in images if r.label_status[finding]][:5]
        negative = [(r.image_id, finding) for r in images if not r.label_status[finding]][:5]
        n = min(len(positive), len(negative))
        assert n > 0
        work = [unpacked_masks(monkeypatch, board.hospital, chosen[:n]) for chosen in (positive, negative)]
        assert work[0] == work[1]
        assert list(work[0].values()) == [n]


# With a worker: a failure reveals nothing, and scores reveal little


def test_failure_message_is_the_same_for_right_and_wrong_files(working: Deployment) -> None:
    """With a damaged holdout both fail with the same message; after the repair both are scored."""

    def ends(model: str) -> list[dict[str, Any]]:
        answers = [
            working.wire.send(("f.jsonl", labels_file(working, is_right=right)), STUDIES, metadata(team, model))
            for team, right in (("Right", True), ("Wrong", False))
        ]
        documents = working.wait(*(answer.json()["id"] for answer in answers))
        wait_until(lambda: working.wire.get("/readyz").json()["queued"] == 0, pause=ASKING)
        return documents

    working.hospital.damage(STUDIES)
    try:
        failed = ends("Again")
    finally:
        working.hospital.repair(STUDIES)
    scored = ends("Once more")
    assert [document["status"] for document in failed + scored] == ["failed", "failed", "scored", "scored"]
    messages = [[(e["to_status"], re.sub(r"INC-\w+", "INC", e["why"])) for e in one["events"]] for one in failed]
    assert messages[0] == messages[1]


def of_labels(answer: Answer | None) -> Answer | None:
    """Return the label scores without the macro, which a real board rounds more than the simulated one."""
    if answer is None:
        return None
    labels = {metric: {x: value for x, value in values.items() if x != MACRO} for metric, values in answer.items()}
    return {metric: values for metric, values in labels.items() if values}


@dataclass
class Attacker:
    """One probing organization; `answers` are (id, scores shown), None if the ladder held them back."""

    board: Deployment
    team: str
    answers: list[tuple[str, dict[str, dict[str, float]] | None]] = field(default_factory=list)
    asked: list[BoolArray] = field(default_factory=list)

    def ask(self, calls: BoolArray) -> Answer | None:
        answer = self.send(of_calls(self.board.hospital, calls), f"Model {len(self.answers)}")
        if answer.status_code == 429:
            raise BudgetSpentError
        submission_id = answer.json()["id"]
        (document,) = self.board.wait(submission_id)
        assert document["status"] == "scored"
        scores = None if document["score"]["shown_of"] != submission_id else figures(document)
        self.answers.append((submission_id, scores))
        self.asked.append(calls)
        return of_labels(scores)

    def send(self, content: bytes, model: str, **more: Any) -> Any:
        return self.board.wire.send(("calls.jsonl", content), STUDIES, metadata(self.team, model, **more))

    @property
    def charged(self) -> int:
        ledgers = self.board.wire.get(f"/api/v1/me/ledger?benchmark={STUDIES}").json()["ledgers"]
        (mine,) = [one for one in ledgers if one["team"]["name"] == self.team]
        assert mine["balance"]["pending"] == 0
        charged: int = mine["balance"]["charged"]
        return charged


def beliefs(truth: BoolArray, seed: int) -> FloatArray:
    """Return the probabilities of a model of AUROC 0.90 for the studies, by Bayes' rule."""
    shift = np.sqrt(2) * norm.ppf(0.90)
    scores = np.random.default_rng(seed).normal(size=truth.shape) + shift * truth
    probabilities: FloatArray = np.clip(
        expit(shift * scores - shift**2 / 2 + logit(truth.mean(axis=0))), 1e-4, 1 - 1e-4
    )
    return probabilities


def f1(truth: BoolArray, calls: BoolArray) -> FloatArray:
    scores: npt.NDArray[np.float64] = f1_score(truth, calls, average=None, zero_division=0)
    return scores


@dataclass
class Attack:
    """The result of an attack: the gain per label, the labels whose calls changed, and the attackers."""

    attackers: list[Attacker]
    gain: FloatArray
    changed: BoolArray


@pytest.fixture(scope="module")
def attack(working: Deployment) -> Attack:
    """Run the attack of five organizations in turn, which share all answers."""
    truth = present(working.hospital)
    attackers = [Attacker(working, f"Prober {number}") for number in range(5)]
    policy = ReleasePolicy()
    steps = {x: Rounding(policy).step_of(n) for x, n in zip(LABELS, truth.sum(axis=0).tolist(), strict=True)}
    prober = Prober(LABELS, beliefs(truth, 0), step=steps)
    calls, own = prober.attack([one.ask for one in attackers], "focused", each=QUOTA), prober.own_calls()
    return Attack(attackers, f1(truth, calls) - f1(truth, own), (calls != own).any(axis=0))


def hidden_labels(board: Deployment) -> BoolArray:
    truth = present(board.hospital)
    is_hidden: BoolArray = np.minimum(truth.sum(axis=0), len(truth) - truth.sum(axis=0)) < FEWEST
    return is_hidden


def test_five_teams_gain_little_and_nothing_on_hidden_labels(working: Deployment, attack: Attack) -> None:
    """One draw of the labels, using label scores; its gain has a standard error of about 0.015.

    The bound applies to the mean over draws, because nobody can choose the draw, and a single draw would judge luck.
    With macros to 0.005 also, this draw gains 0.051, while the mean of 24 draws is 0.044. Therefore the mean with
    macros is bounded by `test_probing_simulation`, where many draws are cheap. The next test shows that its simulated
    board equals this one.
    """
    hidden = hidden_labels(working)
    assert 0 < hidden.sum() < len(LABELS) / 2
    assert attack.gain[~hidden].mean() <= MOST_GAINED, attack.gain.round(3)
    assert not attack.changed[hidden].any()
    assert attack.changed[~hidden].any()  # the attack learns something
    model = roc_auc_score(present(working.hospital)[:, 1], beliefs(present(working.hospital), 0)[:, 1])
    assert model == pytest.approx(0.90, abs=0.05)


def test_board_answers_like_the_simulated_one(working: Deployment, attack: Attack) -> None:
    truth = present(working.hospital)
    for attacker in attack.attackers:
        simulated = GuardedBoard(World(LABELS, truth, np.empty(0)), replace(ReleasePolicy(), n_resamples=10), QUOTA)
        board_answers = [of_labels(answer) for _, answer in attacker.answers]
        assert board_answers == [of_labels(simulated.ask(calls)) for calls in attacker.asked]
        assert sum(answer is not None for _, answer in attacker.answers) > 1


def test_board_answers_three_times_without_hidden_labels(working: Deployment, attack: Attack) -> None:
    hidden = {label for label, is_hidden in zip(LABELS, hidden_labels(working), strict=True) if is_hidden}
    for attacker in attack.attackers:
        assert len(attacker.answers) == attacker.charged == QUOTA
        shown_labels = {label for _, answer in attacker.answers if answer for of in answer.values() for label in of}
        assert shown_labels == {"macro", *LABELS} - hidden


def test_no_way_to_get_a_fourth_answer(working: Deployment, attack: Attack) -> None:
    """Withdrawal, another name or version, the same file again: refused, or the earlier answer."""
    attacker = attack.attackers[0]
    new = of_calls(working.hospital, ~present(working.hospital))
    n_before = len(working.wire.get("/api/v1/me/submissions?limit=200").json()["submissions"])
    first = attacker.answers[0][0]
    assert working.wire.client.delete(f"/api/v1/submissions/{first}").status_code == 200
    fields = metadata(attacker.team, "Model 0")
    newer = {**fields, "model": {"name": "Model 0", "version": "2"}}
    again: Any = {"data": {"benchmark": STUDIES, "metadata": json.dumps(fields)}, "files": {"file": ("c.jsonl", new)}}
    tries = {
        "another name": attacker.send(new, "Quite another"),
        "another version": working.wire.send(("c.jsonl", new), STUDIES, newer),
        "another spelling": working.wire.send(("c.jsonl", new), STUDIES, metadata(attacker.team.upper(), "M")),
        "a key": working.wire.client.post("/api/v1/submissions", headers={"Idempotency-Key": "once"}, **again),
    }
    assert {name: answer.status_code for name, answer in tries.items()} == dict.fromkeys(tries, 429)
    assert attacker.charged == QUOTA
    assert len(working.wire.get("/api/v1/me/submissions?limit=200").json()["submissions"]) == n_before


def test_receipts_and_comparisons_repeat_released_scores(working: Deployment, attack: Attack) -> None:
    own = [(one, scores) for one, scores in attack.attackers[1].answers if scores]
    other = next((one, scores) for one, scores in attack.attackers[2].answers if scores)
    for one, scores in own:
        receipt = working.wire.get(f"/api/v1/submissions/{one}/receipt").json()["receipt"]
        assert {(f["metric"], f["finding"]): float(f["value"]) for f in receipt["released"]["figures"]} == {
            (metric, label): value for metric, of in scores.items() for label, value in of.items()
        }
    (a, of_a), (b, of_b) = own[-1], other
    rows = working.compare(a, b)["document"]["rows"]
    assert rows
    for row in rows:
        figure_a, figure_b = (of[row["metric"]][row["finding"]] for of in (of_a, of_b))
        assert (row["a"], row["b"]) == (figure_a, figure_b)
        assert row["value"] == pytest.approx(figure_a - figure_b, abs=1e-9)


# A free answer must equal the earlier answer to the last bit


def jittered(board: Deployment, calls: BoolArray) -> bytes:
    """Return probabilities that differ from 0.5 only in the tenth decimal, in the direction of the calls."""
    return of_values(board.hospital, np.where(calls, 0.5 + 1e-10, 0.5 - 1e-10))


def test_change_in_the_tenth_decimal_is_charged(working: Deployment) -> None:
    """Otherwise a withdrawn submission could answer any number of questions, because that decimal decides the calls."""
    truth, attacker = present(working.hospital), Attacker(working, "Trembling hand")
    scores_shown = []
    for number, calls in enumerate((truth, ~truth)):
        answer = attacker.send(jittered(working, calls), f"M{number}")
        (document,) = working.wait(answer.json()["id"])
        scores_shown.append(figures(document)["f1"]["macro"])
        assert working.wire.client.delete(f"/api/v1/submissions/{document['id']}").status_code == 200
    assert attacker.charged == 2
    assert scores_shown == [1.0, 1.0]  # the ladder holds the second back: not better than the first


def test_other_thresholds_are_charged(working: Deployment) -> None:
    values = np.random.default_rng(8).random((len(working.hospital.studies), len(LABELS))).round(3)
    attacker, content = Attacker(working, "Threshold Laboratory"), of_values(working.hospital, values)
    for number, threshold in enumerate((0.9, 0.5, 0.2)):
        answer = attacker.send(content, f"M{number}", thresholds=threshold)
        (document,) = working.wait(answer.json()["id"])
        assert working.wire.client.delete(f"/api/v1/submissions/{document['id']}").status_code == 200
    assert attacker.charged == 3


def test_missing_studies_are_charged_with_a_threshold_of_zero(working: Deployment) -> None:
    """With a threshold of 0 a probability of 0 calls the label, while a missing study does not."""
    studies = [study.study_id for study in working.hospital.studies]
    attacker = Attacker(working, "Zero Laboratory")
    for number, chosen in enumerate((studies[::2], studies[1::2])):
        predictions = [FindingsPrediction(one, None, dict.fromkeys(LABELS, 0.0)) for one in chosen]
        answer = working.wire.send(
            ("zeros.jsonl", findings_to_jsonl(predictions).encode()), STUDIES,
            metadata(attacker.team, f"M{number}", thresholds=0.0), allow_missing="true",
        )  # fmt: skip
        (document,) = working.wait(answer.json()["id"])
        assert working.wire.client.delete(f"/api/v1/submissions/{document['id']}").status_code == 200
    assert attacker.charged == 2


def test_identical_answers_are_free_and_score_the_same(working: Deployment) -> None:
    attacker, content = Attacker(working, "Honest Laboratory"), of_calls(working.hospital, present(working.hospital))
    documents = []
    for number in range(2):
        answer = attacker.send(content + b"\n" * number, f"M{number}")
        documents += working.wait(answer.json()["id"])
    assert attacker.charged == 1
    assert documents[0]["score"]["figures"] == documents[1]["score"]["figures"]
