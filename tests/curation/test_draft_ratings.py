"""Draft ratings by a simulated model: kappa against scikit-learn's, and never without readers."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import cohen_kappa_score
from typer.testing import CliRunner

from reveal_bench.cli import app
from reveal_bench.curation.draft_ratings import TEXT_CRITERIA, rating_prompt
from reveal_bench.curation.report_prompts import UnreadableAnswerError
from reveal_bench.kinds.tasks.records import TaskRecord
from reveal_bench.sources.rexecution_files import parse_ratings
from reveal_bench.sources.source import Problem
from tests.curation.model_server import ModelServer, running_model
from tests.dataset.card_folders import tasks_folder
from tests.models.conftest import saying
from tests.models.endpoint import PlayedModel

N = 6
READER = [5, 1, 4, 2, 3, 3]
DRAFT = [4, 1, 5, 2, 2, 3]


def drafted(text: str) -> dict[str, Any]:
    """Scores by the number in the answer."""
    asked = json.loads(text)
    score = DRAFT[int(asked["answer"].split()[1])]
    return {"why": "Because.", **dict.fromkeys(TEXT_CRITERIA, score)}


def draft(tmp_path: Path, model: ModelServer | PlayedModel, *more: str, rated: str = "a") -> Any:
    held = tmp_path / "folder"
    folder = held if held.exists() else tasks_folder(tmp_path, n=N)
    answers = tmp_path / "a.jsonl"
    answers.write_text("".join(json.dumps({"task_id": f"task-{i}", "answer": f"Number {i}"}) + "\n" for i in range(N)))
    ratings = tmp_path / "ratings.csv"
    rows = "".join(f"task-{i},{rated},r1,{score},{score},{score},{score}\n" for i, score in enumerate(READER))
    ratings.write_text("task_id,model,reader,process,execution,synthesis,language\n" + rows)
    words = ["draft-ratings", f"a={answers}", "--folder", str(folder), "--ratings", str(ratings), "--split", "test"]
    words += ["--out", str(tmp_path / "out"), "--model", "grader-1", "--endpoint", model.url]
    return CliRunner().invoke(app, [*words, *more])


def test_drafts_stand_beside_their_agreement_with_readers(tmp_path: Path) -> None:
    with running_model({}, others={"rating": drafted}) as model:
        done = draft(tmp_path, model)
    assert done.exit_code == 0, done.output
    with (tmp_path / "out" / "agreement.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["criterion"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"content", *TEXT_CRITERIA}
    expected = cohen_kappa_score(DRAFT, READER, weights="quadratic", labels=[1, 2, 3, 4, 5])
    for row in rows.values():
        assert float(row["cohen_kappa_quadratic"]) == pytest.approx(expected)
        assert float(row["mean_absolute_difference"]) == pytest.approx(3 / 6)  # 1, 0, 1, 0, 1, 0
        assert (row["reader"], row["n"]) == ("r1", "6")
    assert f"kappa {expected:6.3f}  MAD 0.50  n 6" in done.output
    sent = json.loads(model.asked[0]["messages"][1]["content"])
    assert sent["reference_answer"].startswith("A round opacity of")
    problems: list[Problem] = []
    assert parse_ratings(tmp_path / "out" / "drafts.csv", problems, []) == []  # no score is made of drafts
    assert [(p.field, p.rule) for p in problems] == [("reader", "must be a column")]


def test_a_grader_that_sees_the_films_rates_by_them(tmp_path: Path) -> None:
    """The model scores by the image, answers nonsense once, and is not asked an answered question again."""
    folder = tasks_folder(tmp_path, n=N)
    says = {f"task-{i}": json.dumps({"why": "It shows.", **dict.fromkeys(TEXT_CRITERIA, DRAFT[i])}) for i in range(N)}
    with saying(folder, "test", says) as model:
        model.faults["task-2"] = ["cut_off"]
        done = draft(tmp_path, model, "--films")
        assert done.exit_code == 0, done.output
        assert len(model.asked) == N + 1
        again = draft(tmp_path, model, "--films")
        assert (again.exit_code, len(model.asked)) == (0, N + 1)
    with (tmp_path / "out" / "drafts.csv").open(encoding="utf-8", newline="") as file:
        drafts = list(csv.DictReader(file))
    assert [int(row["synthesis"]) for row in drafts] == DRAFT
    assert {row["grader"].partition("|prompts")[0] for row in drafts} == {"grader-1|ratings with films"}
    expected = cohen_kappa_score(DRAFT, READER, weights="quadratic", labels=[1, 2, 3, 4, 5])
    assert f"kappa {expected:6.3f}  MAD 0.50  n 6" in done.output
    logs = [zipfile.ZipFile(path) for path in (tmp_path / "out" / "logs").glob("*.eval")]
    assert logs
    assert not any(b"data:image/png" in log.read(name) for log in logs for name in log.namelist())


def test_no_drafts_without_readers(tmp_path: Path) -> None:
    with running_model({}, others={"rating": drafted}) as model:
        result = draft(tmp_path, model, rated="b")
    assert "drafts are shown only with their agreement with readers" in str(result.exception)
    assert model.asked == []


def test_a_score_that_is_none() -> None:
    prompt = rating_prompt(TaskRecord("t", "s", "p", "Is there a mass?", "diagnosis_support"), "No.")
    with pytest.raises(UnreadableAnswerError, match="process must be one of"):
        prompt.read(json.dumps({"why": "So.", **dict.fromkeys(TEXT_CRITERIA, 0)}))
