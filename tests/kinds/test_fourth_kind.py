"""A fourth kind, defined only in tests/kinds/toy: built, checked, linted, scored, compared, submitted, ranked.

The two packages are copied, and the copy gets the parts that docs/architecture.md lists for a new kind: its folder in
`kinds/`, its line in KINDS, its row in BENCHMARKS and its card. Commands, server, worker and confined processes then
run from there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.evaluation.compare import compare, rank
from reveal_bench.evaluation.score import lint_file, score_file
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.metrics.intervals import Resampling
from tests.conftest import ROOT
from tests.kinds.toy import TUBES, TUBES_KIND
from tests.kinds.toy.scoring import METRIC
from tests.leaderboard.conftest import ASKING, METADATA, Board, running, serve, wait_until
from tests.leaderboard.forked import started

N = 120
"""Number of films; every third tube is in a wrong place, and each patient has two films."""
UNFINISHED = shutil.ignore_patterns("*.pyc.*", "*.tmp.*")
"""Files not to copy: another process may be writing them. Compiled files are copied."""
BUILD = """
import sys
from pathlib import Path
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.cli import main
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.tubes.scoring import TubeRecord

films = [TubeRecord(f"f{i:03d}", f"s{i:03d}", f"p{i // 2}", i %% 3 > 0) for i in range(%d)]
folders = {"out": Path("public"), "holdout": Path("private")}
build_folder({"test": films}, benchmark=BENCHMARKS["tubes"], pixels="withhold", seed=3, synthetic=True, **folders)
sys.argv = ["reveal-bench", "validate", "public"]
main()
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the copy in `packages`, the dataset built with it in `public` and `private`, and the output
    of ``reveal-bench validate`` in `validated.txt`.
    """
    root = tmp_path_factory.mktemp("fourth")
    packages, kind = root / "packages", root / "packages" / "reveal_bench" / "kinds"
    parts = ("reveal_bench", "leaderboard/reveal_leaderboard", "dataset_cards", "submissions")
    for source in (ROOT / part for part in parts):
        shutil.copytree(source, packages / source.name, ignore=UNFINISHED)
    shutil.copytree(ROOT / "tests" / "kinds" / "toy", kind / "tubes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.move(kind / "tubes" / "tubes.md", packages / "dataset_cards")
    append(kind / "__init__.py", "from reveal_bench.kinds.tubes import TUBES_KIND\nKINDS['tubes'] = TUBES_KIND\n")
    append(packages / "reveal_bench" / "benchmarks.py", f"BENCHMARKS['tubes'] = {TUBES!r}\n")
    (root / "validated.txt").write_text(run(root, "-c", BUILD % N))  # one process, because imports take longest
    return root


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


def command(root: Path, *arguments: str | Path) -> str:
    """Return the output of ``reveal-bench ARGUMENTS``."""
    return run(root, "-c", "from reveal_bench.cli import main; main()", *arguments)


def run(root: Path, *arguments: str | Path) -> str:
    """Return the output of Python, run in `root` with the copied packages."""
    environment = {**os.environ, "PYTHONPATH": str(root / "packages")}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, TUBES_KIND.name, TUBES_KIND)
    monkeypatch.setitem(BENCHMARKS, TUBES.name, TUBES)


@pytest.fixture
def files(root: Path, registered: None) -> tuple[Path, Path]:
    """Write two files for the split "released": always correct, and "right" for most films."""
    return answer_files(root, "released")


def answer_files(root: Path, split: str) -> tuple[Path, Path]:
    paths = root / f"sharp-{split}.jsonl", root / f"fair-{split}.jsonl"
    films = TUBES_KIND.questions.read_manifest(root / "public", split).films
    for path, says in zip(
        paths, (lambda film: int(film[1:]) % 3 > 0, lambda film: int(film[1:]) % 12 > 0), strict=True
    ):
        path.write_text("".join(json.dumps({"film_id": film, "is_right": says(film)}) + "\n" for film in films))
    return paths


def test_dataset_is_built_and_checked(root: Path) -> None:
    assert "no problems" in (root / "validated.txt").read_text()
    info = json.loads((root / "public" / "manifest" / "benchmark.json").read_text())
    assert {split: entry["references"] for split, entry in info["splits"].items()} == {
        "released": "public", "holdout": "private",
    }  # fmt: skip
    assert info["splits"]["released"]["n_films"] + info["splits"]["holdout"]["n_films"] == N
    card = (root / "public" / "README.md").read_text()
    assert "tubes are in the right place." in card
    assert "| `is_right` | whether the tube is well placed |" in card


def test_python_functions(root: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    folder, split = root / "public", "released"
    assert lint_file(files[0], folder, split).ok
    (tmp_path / "wrong.jsonl").write_text('{"film_id": "f000", "is_right": "yes"}\n')
    assert [p.rule for p in lint_file(tmp_path / "wrong.jsonl", folder, split).problems] == ["answer"]
    sharp, fair = (score_file(path, folder, split, ScoringOptions(n_resamples=200)) for path in files)
    assert [e.value for e in sharp.estimates] == [1, 1]
    share = fair.estimates[0].value
    assert share == pytest.approx(3 / 4, abs=0.1)
    assert fair.estimates[0].low < share < fair.estimates[0].high
    (macro, one) = compare(sharp.rows, fair.rows, Resampling(200))
    assert (macro.metric, one.finding, one.estimate.value) == (METRIC, "Tube", pytest.approx(1 - share))
    places = rank({"sharp": sharp.rows, "fair": fair.rows}, metric=METRIC, resampling=Resampling(200))
    assert [(place.name, place.rank) for place in places] == [("sharp", 1), ("fair", 2)]


def test_by_command(root: Path, files: tuple[Path, Path]) -> None:
    """The copy recognizes the fourth kind from the folder's own description and prints the scores computed here."""
    assert re.search(
        r"Tube +60 +100\.0 +\d\d\.\d +\d\d\.\d +\d+\.\d to ",
        command(root, "compare", *files, "public", "--split", "released"),
    )


def test_on_a_board(root: Path, registered: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two uploads to a server on SQLite are linted and scored by confined processes and listed in the table."""
    monkeypatch.setenv("PYTHONPATH", str(root / "packages"))
    monkeypatch.chdir(root)  # `python -m` looks here first
    with serve(Board(root / "public", root / "private"), root, start=started) as server:
        sent = {}
        for file in answer_files(root, "holdout"):
            metadata = {**METADATA, "model": {"name": file.stem}, "organization": f"Laboratory {file.stem}"}
            answer = server.post(file, metadata, fields={"benchmark": "tubes"})
            assert answer.status_code == 202, answer.text
            sent[file.stem] = answer.json()["id"]
        holdout = f"tubes={root / 'private'}"
        where = ("--data", server.data, "--holdout", holdout)
        with running("worker", *where, log=root / "worker.log", start=started):
            scored = [server.wait_scored(identifier) for identifier in sent.values()]
            assert [document["status"] for document in scored] == ["scored", "scored"], scored

            def table() -> dict[str, Any] | None:
                document: dict[str, Any] = server.get("/api/v1/leaderboard?benchmark=tubes").json()
                is_placed = [entry["tier"] for entry in document["entries"]]
                return document if len(is_placed) == len(sent) and all(is_placed) else None

            board = wait_until(table, pause=ASKING)
        page = server.get("/?benchmark=tubes")
    assert [(entry["model"], entry["tier"]) for entry in board["entries"]] == [
        ("sharp-holdout", "A"), ("fair-holdout", "B"),
    ]  # fmt: skip
    assert page.status_code == 200
