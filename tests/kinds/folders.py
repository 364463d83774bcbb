"""Folders of findings and of tasks with scores checkable by hand, each with the files of two models."""

from __future__ import annotations

import json

import pytest

from tests.dataset.card_folders import LABELS, findings_folder, tasks_folder

N_STUDIES = 6
"""Number of studies; all have Edema, and every third has the first two of LABELS."""


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """Write a findings folder and two prediction files: one correct, one without the second label."""
    root = tmp_path_factory.mktemp("studies")
    folder = findings_folder(root, n=N_STUDIES)
    for name, second in (("right", LABELS[:2]), ("half", LABELS[:1])):
        rows = [{"study_id": f"study-{i}", "labels": second if i % 3 == 0 else ["Edema"]} for i in range(N_STUDIES)]
        path = root / "files" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder, root / "files"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Write four tasks, answers of models a and b, and two readers' ratings: a gets 4 and 5, b gets 2 and 3."""
    root = tmp_path_factory.mktemp("tasks")
    folder = tasks_folder(root)
    lines = ["task_id,model,reader,process,execution,synthesis,language,image_content,image_style"]
    for model, scores in (("a", (4, 5)), ("b", (2, 3))):
        path = root / "files" / f"{model}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps({"task_id": f"task-{i}", "answer": "No."}) + "\n" for i in range(4)))
        lines += [f"task-{i},{model},r{k},{s},{s},{s},{s},," for i in range(4) for k, s in enumerate(scores)]
    (root / "ratings.csv").write_text("\n".join(lines) + "\n")
    return folder, root / "files", root / "ratings.csv"


def figures(scores):
    """(metric, finding) of every score -> its value."""
    return {(one.metric, one.finding): one.value for one in scores.scored.estimates}
