"""Five organizations against the real board, over HTTP: three answers for each, whatever is tried to have more.

They share a model (AUROC 0.90 on every label) and whatever each of them is told. What they gain is the F1 of the calls
that they could send in the end over that of their model alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from reveal_leaderboard.settings import ReleasePolicy
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.metrics import f1_score, roc_auc_score

from reveal_bench.kinds.findings.records import FindingsPrediction
from reveal_bench.predictions import findings_to_jsonl
from tests.leaderboard.leak.answers import BoolArray, figures, metadata, of_calls, of_values, present
from tests.leaderboard.leak.deployment import Deployment, deployed
from tests.leaderboard.leak.hospital import FIRST, LABELS, STUDIES, Hospital
from tests.leaderboard.probing import Answer, BudgetSpentError, FloatArray, Prober
from tests.leaderboard.test_probing_simulation import GuardedBoard, World

pytestmark = pytest.mark.processes
QUOTA = 3  # the packaged one; only the limit of a day is lifted
SETTINGS = f"[quota]\ntotal = {QUOTA}\nper_day = {QUOTA}\n"
MOST_GAINED = 0.05
FEWEST = 30


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    root = tmp_path_factory.mktemp("probing")
    hospital = Hospital(root / "hospital", n_images=40, n_studies=300, common=0.3, versions=(FIRST,)).build()
    with deployed(hospital, root, SETTINGS) as running, running.worker():
        yield running


@dataclass
class Attacker:
    """One organization that asks; `answers` are (id, what was shown of it), None where the ladder held it back."""

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
        shown = None if document["score"]["shown_of"] != submission_id else figures(document)
        self.answers.append((submission_id, shown))
        self.asked.append(calls)
        return shown

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
    """What a model of AUROC 0.90 makes of the studies, by Bayes' rule."""
    shift = np.sqrt(2) * norm.ppf(0.90)
    scores = np.random.default_rng(seed).normal(size=truth.shape) + shift * truth
    found: FloatArray = np.clip(expit(shift * scores - shift**2 / 2 + logit(truth.mean(axis=0))), 1e-4, 1 - 1e-4)
    return found


def f1(truth: BoolArray, calls: BoolArray) -> FloatArray:
    scores: npt.NDArray[np.float64] = f1_score(truth, calls, average=None, zero_division=0)
    return scores


@dataclass
class Attack:
    """What came of one: the gain per label, the labels whose calls changed, and those who did it."""

    attackers: list[Attacker]
    gain: FloatArray
    changed: BoolArray


@pytest.fixture(scope="module")
def attack(board: Deployment) -> Attack:
    """Five organizations, one after the other, who share what each of them is told."""
    truth = present(board.hospital)
    attackers = [Attacker(board, f"Prober {number}") for number in range(5)]
    policy = ReleasePolicy()
    steps = {x: policy.step_of(n) for x, n in zip(LABELS, truth.sum(axis=0).tolist(), strict=True)}
    prober = Prober(LABELS, beliefs(truth, 0), step=steps)
    calls, own = prober.attack([one.ask for one in attackers], "focused", each=QUOTA), prober.own_calls()
    return Attack(attackers, f1(truth, calls) - f1(truth, own), (calls != own).any(axis=0))


def hidden_labels(board: Deployment) -> BoolArray:
    truth = present(board.hospital)
    found: BoolArray = np.minimum(truth.sum(axis=0), len(truth) - truth.sum(axis=0)) < FEWEST
    return found


def test_five_teams_together_gain_little_on_shown_labels_and_nothing_on_hidden_ones(
    board: Deployment, attack: Attack
) -> None:
    """One draw of the labels: the standard error of its gain is some 0.015.

    The mean is bounded where many draws can be had (`test_probing_simulation`); that this is the board simulated there
    is the next test.
    """
    hidden = hidden_labels(board)
    assert 0 < hidden.sum() < len(LABELS) / 2
    assert attack.gain[~hidden].mean() <= MOST_GAINED, attack.gain.round(3)
    assert not attack.changed[hidden].any()
    assert attack.changed[~hidden].any()  # the attack did learn something
    model = roc_auc_score(present(board.hospital)[:, 1], beliefs(present(board.hospital), 0)[:, 1])
    assert model == pytest.approx(0.90, abs=0.05)


def test_the_board_answers_each_as_the_simulated_one(board: Deployment, attack: Attack) -> None:
    truth = present(board.hospital)
    for attacker in attack.attackers:
        simulated = GuardedBoard(World(LABELS, truth, np.empty(0)), replace(ReleasePolicy(), n_resamples=10), QUOTA)
        assert [answer for _, answer in attacker.answers] == [simulated.ask(calls) for calls in attacker.asked]
        assert sum(answer is not None for _, answer in attacker.answers) > 1


def test_the_board_answers_each_three_times_and_shows_no_hidden_label(board: Deployment, attack: Attack) -> None:
    hidden = {label for label, is_hidden in zip(LABELS, hidden_labels(board), strict=True) if is_hidden}
    for attacker in attack.attackers:
        assert len(attacker.answers) == attacker.charged == QUOTA
        shown = {label for _, answer in attacker.answers if answer for of in answer.values() for label in of}
        assert shown == {"macro", *LABELS} - hidden


def test_nothing_gives_a_fourth_answer(board: Deployment, attack: Attack) -> None:
    """Withdrawing, another name, a version, the same file again: refused, or the answer that was there before."""
    attacker = attack.attackers[0]
    new = of_calls(board.hospital, ~present(board.hospital))
    n_before = len(board.wire.get("/api/v1/me/submissions?limit=200").json()["submissions"])
    first = attacker.answers[0][0]
    assert board.wire.client.delete(f"/api/v1/submissions/{first}").status_code == 200
    said = metadata(attacker.team, "Model 0")
    newer = {**said, "model": {"name": "Model 0", "version": "2"}}
    again: Any = {"data": {"benchmark": STUDIES, "metadata": json.dumps(said)}, "files": {"file": ("c.jsonl", new)}}
    tries = {
        "another name": attacker.send(new, "Quite another"),
        "another version": board.wire.send(("c.jsonl", new), STUDIES, newer),
        "another spelling": board.wire.send(("c.jsonl", new), STUDIES, metadata(attacker.team.upper(), "M")),
        "a key": board.wire.client.post("/api/v1/submissions", headers={"Idempotency-Key": "once"}, **again),
    }
    assert {name: answer.status_code for name, answer in tries.items()} == dict.fromkeys(tries, 429)
    assert attacker.charged == QUOTA
    assert len(board.wire.get("/api/v1/me/submissions?limit=200").json()["submissions"]) == n_before


def test_receipts_and_comparisons_repeat_the_figures_that_are_shown(board: Deployment, attack: Attack) -> None:
    own = [(one, shown) for one, shown in attack.attackers[1].answers if shown]
    other = next((one, shown) for one, shown in attack.attackers[2].answers if shown)
    for one, shown in own:
        receipt = board.wire.get(f"/api/v1/submissions/{one}/receipt").json()["receipt"]
        assert {(f["metric"], f["finding"]): float(f["value"]) for f in receipt["released"]["figures"]} == {
            (metric, label): value for metric, of in shown.items() for label, value in of.items()
        }
    (a, of_a), (b, of_b) = own[-1], other
    rows = board.compare(a, b)["document"]["rows"]
    assert rows
    for row in rows:
        figure_a, figure_b = (of[row["metric"]][row["finding"]] for of in (of_a, of_b))
        assert (row["a"], row["b"]) == (figure_a, figure_b)
        assert row["value"] == pytest.approx(figure_a - figure_b, abs=1e-9)


# What is free must be what was answered before, to the last bit


def jittered(board: Deployment, calls: BoolArray) -> bytes:
    """Probabilities that differ from 0.5 in the tenth decimal only, as the calls are."""
    return of_values(board.hospital, np.where(calls, 0.5 + 1e-10, 0.5 - 1e-10))


def test_equal_but_for_the_tenth_decimal_is_charged(board: Deployment) -> None:
    """Else a withdrawn submission would answer any number of questions: the calls turn on that decimal."""
    truth, attacker = present(board.hospital), Attacker(board, "Trembling hand")
    shown = []
    for number, calls in enumerate((truth, ~truth)):
        answer = attacker.send(jittered(board, calls), f"M{number}")
        (document,) = board.wait(answer.json()["id"])
        shown.append(figures(document)["f1"]["macro"])
        assert board.wire.client.delete(f"/api/v1/submissions/{document['id']}").status_code == 200
    assert attacker.charged == 2
    assert shown == [1.0, 1.0]  # the second is held back by the ladder: not better than the first


def test_other_thresholds_are_charged(board: Deployment) -> None:
    values = np.random.default_rng(8).random((len(board.hospital.studies), len(LABELS))).round(3)
    attacker, content = Attacker(board, "Threshold Laboratory"), of_values(board.hospital, values)
    for number, threshold in enumerate((0.9, 0.5, 0.2)):
        answer = attacker.send(content, f"M{number}", thresholds=threshold)
        (document,) = board.wait(answer.json()["id"])
        assert board.wire.client.delete(f"/api/v1/submissions/{document['id']}").status_code == 200
    assert attacker.charged == 3


def test_absent_studies_are_charged_where_a_threshold_of_zero_calls_the_rest(board: Deployment) -> None:
    """With a threshold of 0 a probability of 0 calls the label, and a study that is left out does not."""
    studies = [study.study_id for study in board.hospital.studies]
    attacker = Attacker(board, "Zero Laboratory")
    for number, chosen in enumerate((studies[::2], studies[1::2])):
        given = [FindingsPrediction(one, None, dict.fromkeys(LABELS, 0.0)) for one in chosen]
        answer = board.wire.send(
            ("zeros.jsonl", findings_to_jsonl(given).encode()), STUDIES,
            metadata(attacker.team, f"M{number}", thresholds=0.0), allow_missing="true",
        )  # fmt: skip
        (document,) = board.wait(answer.json()["id"])
        assert board.wire.client.delete(f"/api/v1/submissions/{document['id']}").status_code == 200
    assert attacker.charged == 2


def test_the_very_same_answers_are_free_and_show_the_same(board: Deployment) -> None:
    attacker, content = Attacker(board, "Honest Laboratory"), of_calls(board.hospital, present(board.hospital))
    documents = []
    for number in range(2):
        answer = attacker.send(content + b"\n" * number, f"M{number}")
        documents += board.wait(answer.json()["id"])
    assert attacker.charged == 1
    assert documents[0]["score"]["figures"] == documents[1]["score"]["figures"]
