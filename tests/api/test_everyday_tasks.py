"""docs/python.md, "Ten everyday tasks": every line runs and takes as many calls as the table says.

Only the report command is not run, because it does the same as the call and takes as long.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import reveal_bench as rb
from reveal_bench.cli import app
from reveal_bench.kinds.localization.records import read_manifest
from tests.conftest import ROOT, World

SECTION = (ROOT / "docs" / "python.md").read_text(encoding="utf-8").split("## Ten everyday tasks")[1].split("\n## ")[0]
TASKS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in SECTION.splitlines() if re.match(r"\| .*`", line)]


@pytest.fixture(scope="module")
def desk(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all files and objects that the table's lines name."""
    desk = tmp_path_factory.mktemp("desk")
    (desk / "data").symlink_to(world.folder)
    asked = read_manifest(world.folder, "released").asked_pairs()
    lines = [{"image_id": image_id, "finding": finding, "cell": "C4"} for image_id, finding in asked]
    (desk / "systems").mkdir()
    names = ["mine.jsonl", "theirs.jsonl", *(f"systems/{letter}.jsonl" for letter in "abcde")]
    for i, name in enumerate(names):
        cells = ("C4", "D4", "C3", "E5", "D5", "F4", "B3")
        (desk / name).write_text("".join(json.dumps(line | {"cell": cells[i]}) + "\n" for line in lines))
    pd.DataFrame(lines).to_csv(desk / "mine.csv", index=False)
    images, findings = (sorted({pair[i] for pair in asked}) for i in range(2))
    number = {name: i + 1 for names in (images, findings) for i, name in enumerate(names)}
    coco = {
        "images": [{"id": number[name], "file_name": f"{name}.jpg"} for name in images],
        "categories": [{"id": number[name], "name": name} for name in findings],
    }
    (desk / "instances.json").write_text(json.dumps(coco))
    boxes = [{"image_id": number[a], "category_id": number[b], "bbox": [8, 8, 20, 20], "score": 0.5} for a, b in asked]
    (desk / "results.json").write_text(json.dumps(boxes))
    return desk


def test_the_table_has_ten_tasks() -> None:
    assert len(TASKS) == 10


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task[0])
def test_task_takes_the_calls_and_commands_in_the_table(
    desk: Path, task: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk)
    _, code, n_calls, words, n_commands = task
    expression = ast.parse(code.strip("`"), mode="eval")
    assert sum(isinstance(node, ast.Call) for node in ast.walk(expression)) == int(n_calls)
    commands = re.findall(r"`reveal-bench ([^`]+)`", words)
    assert len(commands) == (0 if n_commands == "-" else int(n_commands))
    assert eval(compile(expression, "python.md", "eval"), {"rb": rb, "frame": pd.read_csv("mine.csv")}) is not None
    for command in commands if task[0] != "make a report" else ():
        done = CliRunner().invoke(app, shlex.split(command), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert done.output
