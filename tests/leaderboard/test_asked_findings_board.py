"""A board of a benchmark that asks five of CheXpert's fourteen findings, over the API and with a worker."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
from reveal_leaderboard.boards.standings import standings
from reveal_leaderboard.custody import Custody
from reveal_leaderboard.web.pages import board_view
from reveal_leaderboard.web.pages.first_sentences import board_opening
from reveal_leaderboard.web.pages.submit import SubmitHandlers
from reveal_leaderboard.worker.worker import Worker, open_holdouts
from sklearn.metrics import cohen_kappa_score, f1_score, recall_score, roc_auc_score

from reveal_bench.arrays import BoolArray, FloatArray
from reveal_bench.findings import CHEXPERT_LABELS
from reveal_bench.kinds.findings.records import StudyManifest, read_studies
from reveal_bench.phantom.competition import write_competition
from tests.cli.test_score import call
from tests.leaderboard.api_app import SUBMISSIONS, World, api_world, problem
from tests.leaderboard.conftest import Board
from tests.leaderboard.databases import Kept

NAME = "chexpert"
ASKED = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
SETTINGS = """
[quota]
total = 9
per_day = 9
[release]
min_cell = 10
bands = [10]
band_resolution = [0.01]
n_resamples = 100
"""


class StudyBoard(Board):
    """A board of studies."""

    @property
    def manifest(self) -> StudyManifest:  # type: ignore[override]
        manifest = self.published.manifest
        assert isinstance(manifest, StudyManifest)
        return manifest


@dataclass
class Competition:
    """A board over the API, its worker, and the references that only this test knows."""

    board: StudyBoard
    world: World
    worker: Worker
    present: BoolArray

    def file(self, head: Sequence[str], table: FloatArray) -> bytes:
        rows = (
            ",".join([study, *map(str, row)]) for study, row in zip(self.board.manifest.studies, table, strict=True)
        )
        return "\n".join([",".join(["study_id", *head]), *rows]).encode()

    def send(self, content: bytes, name: str = "mine.csv", **fields: str) -> httpx.Response:
        owner = self.world.owner
        about = {"model": {"name": name.split(".")[0]}, "organization": owner.team.name, "kind": "cnn"}
        data = {"benchmark": NAME, "metadata": json.dumps(about), **fields}
        return self.world.client(owner).post(SUBMISSIONS, data=data, files={"file": (name, content)})

    def score(self, content: bytes, name: str) -> dict[tuple[str, str], float]:
        """Send a file, score it, and return (metric, finding) -> released value."""
        answer = self.send(content, name)
        assert answer.status_code == 202, answer.text
        self.worker.run(once=True)
        document = self.world.client(self.world.owner).get(answer.json()["url"]).json()
        return {(figure["metric"], figure["finding"]): figure["value"] for figure in document["score"]["figures"]}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, custody: Custody) -> Iterator[Competition]:
    root = tmp_path_factory.mktemp("competition")
    write_competition(root / "raw", 500)
    board = StudyBoard(root / "public", root / "private" / "kept")
    call("build", root / "raw", "--out", board.folder, "--findings", ",".join(ASKED), "--holdout", board.holdout)
    references = {study.study_id: study.labels for study in read_studies(board.holdout, "holdout")}
    present = np.array([[label in references[study] for label in ASKED] for study in board.manifest.studies])
    with api_world(board, root, settings=SETTINGS, children=custody) as world:
        services = world.services
        holdouts = open_holdouts([(NAME, board.holdout)], shared=[root / "blobs"], vault=root / "vault")
        worker = Worker(services.store, services.intake.blobs, holdouts, custody, services.settings)
        yield Competition(board, world, worker, present)


@pytest.fixture
def five(kept: Competition) -> Iterator[Competition]:
    """The same board for every test, without the submissions of other tests."""
    before = Kept(kept.world.services.store.engine)
    yield kept
    before.put_back()


def probabilities(present: BoolArray, seed: int, noise: float = 1.0) -> FloatArray:
    """Probabilities that are higher where a finding is present, with four decimals."""
    logits = np.random.default_rng(seed).normal(2.0 * present - 1.0, noise)
    return np.round(1 / (1 + np.exp(-logits)), 4)


def test_scores_equal_scikit_learns_over_the_asked_findings(five: Competition) -> None:
    """Two systems: labels of five findings, and probabilities of all fourteen, which the ladder must not hold back."""
    scores = probabilities(five.present, 1)
    others = np.full((len(scores), len(CHEXPERT_LABELS)), 0.7)
    others[:, [CHEXPERT_LABELS.index(label) for label in ASKED]] = scores
    called = probabilities(five.present, 2, noise=2.0) >= 0.5
    lines = [
        json.dumps({"study_id": study, "labels": [label for label, is_in in zip(ASKED, row, strict=True) if is_in]})
        for study, row in zip(five.board.manifest.studies, called, strict=True)
    ]
    first = five.score("\n".join(lines).encode(), "labels.jsonl")
    second = five.score(five.file(CHEXPERT_LABELS, others), "fourteen.csv")
    for released, decisions in ((first, called), (second, scores >= 0.5)):
        for metric, oracle in (("f1", f1_score), ("recall", recall_score), ("cohen_kappa", cohen_kappa_score)):
            values = [oracle(five.present[:, i], decisions[:, i]) for i in range(5)]
            shown = [released[metric, label] for label in (*ASKED, "macro")]
            assert shown == pytest.approx([*values, np.mean(values)], abs=0.005 + 1e-9)
    assert second["auroc", "macro"] == pytest.approx(roc_auc_score(five.present, scores, average="macro"), abs=0.005)
    services = five.world.services
    board = standings(services.store, services.catalogue.current(NAME))
    assert [(entry.model, entry.rank) for entry in board.entries] == [("fourteen", 1), ("labels", 2)]


def test_pages_documents_and_exports_name_the_asked_findings(five: Competition) -> None:
    client, part = five.world.client(), "5 of 14 findings"
    five.score(five.file(ASKED, probabilities(five.present, 3)), "model.csv")
    services = five.world.services
    board = standings(services.store, services.catalogue.current(NAME))
    assert f"{part} ({', '.join(ASKED)})" in board_opening(board)
    assert part in board_view.render(board)
    assert f"Asks {part}: {', '.join(ASKED)}." in SubmitHandlers(services).asked(NAME)
    (listed,) = client.get("/api/v1/benchmarks").json()["benchmarks"]
    document = client.get(f"/api/v1/leaderboard?benchmark={NAME}").json()
    assert [(one["part"], one["findings"]) for one in (listed, document)] == [(part, list(ASKED))] * 2
    rows = list(csv.DictReader(client.get(f"/api/v1/leaderboard?benchmark={NAME}&format=csv").text.splitlines()))
    assert {row["finding"] for row in rows} == {*ASKED, "macro"}
    assert all(f"|part:{part} (names " in row["signature"] for row in rows)
    receipt = client.get(f"{SUBMISSIONS}/{board.entries[0].submission_id}/receipt").json()["receipt"]
    assert all(f"|part:{part} (names " in figure["signature"] for figure in receipt["released"]["figures"])


def test_answers_on_other_findings_are_left_out_by_count(five: Competition) -> None:
    answer = five.send(five.file(CHEXPERT_LABELS, np.full((len(five.present), 14), 0.25)))
    messages = [one["message"] for one in answer.json()["report"]["problems"]]
    assert any(text.startswith("answers on 9 findings that are not asked were left out") for text in messages)


def test_files_that_no_board_takes_are_refused_in_a_sentence(five: Competition) -> None:
    table = probabilities(five.present, 4)

    def errors(content: bytes) -> list[dict[str, Any]]:
        report = problem(five.send(content), 422, "lint")["report"]
        return [one for one in report["problems"] if one["severity"] == "error"]

    (scale,) = errors(five.file(ASKED, np.where(np.arange(len(table))[:, None] == 0, 2.5, 9 * table - 3)))
    assert scale["message"].startswith("must be in [0, 1], because a leaderboard counts decisions; ")
    assert scale["hint"].startswith(
        "a logit? apply the sigmoid first (torch.sigmoid, scipy.special.expit), which keeps"
    )
    part = five.file(ASKED, table).splitlines()[:13]
    (refusal,) = errors(b"\n".join(part))
    n = len(table)
    assert (
        f"{n - 12} of {n} studies have no prediction, and a leaderboard takes no part of a split" in refusal["message"]
    )
    released = five.board.published.ids_of_other_splits
    other = "\n".join(["study_id," + ",".join(ASKED), *(f"{study},0,1,0,0,1" for study in released)])
    hints = {one["hint"] for one in errors(other.encode()) if one["rule"] == "unknown-study"}
    assert hints == {"it belongs to split 'released'"}
