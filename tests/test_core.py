"""The core works alone: build, validate, lint, score, compare and rank, with every other room deleted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

ABOVE_THE_CORE = {
    "analyses", "api", "cli", "curation", "exchange", "models", "phantom", "reader_studies", "reports", "saliency_maps",
    "scale", "viewer",
}  # fmt: skip
MOST_LINES = 50_000
"""Most lines of Python and C that the core may have."""

WORK = """
import json, sys
from pathlib import Path

import reveal_bench
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.evaluation.baselines import chance_baseline
from reveal_bench.evaluation.compare import compare, rank
from reveal_bench.evaluation.score import lint_file, score_file
from reveal_bench.kinds import KINDS
from reveal_bench.sources import detect_source

root, work = map(Path, sys.argv[1:])
source = detect_source(root)
records = source.read(root, pixels="withhold")
out, vault = work / "data", work / "vault"
benchmark = BENCHMARKS[source.benchmark]
build_folder(records.splits, out, benchmark, pixels="withhold", holdout=vault, seed=3, synthetic=True)
problems = validate_folder(out, holdout=vault, load=False)

kind = KINDS[benchmark.kind]
manifest = kind.questions.read_manifest(out, "released")
files = [work / "a.jsonl", work / "b.jsonl"]
for seed, file in enumerate(files):
    predictions = chance_baseline(manifest, seed=seed)
    file.write_text(kind.predictions.to_jsonl(predictions), encoding="utf-8")
reports = [lint_file(file, out, "released") for file in files]
scored = [score_file(file, out, "released") for file in files]
rows = {file.stem: one.rows for file, one in zip(files, scored)}
print(json.dumps({
    "package": str(Path(reveal_bench.__file__).parent),
    "problems": [str(problem) for problem in problems],
    "ok": [report.ok for report in reports],
    "n_estimates": [len(one.estimates) for one in scored],
    "n_differences": len(compare(rows["a"], rows["b"])),
    "ranked": sorted(one.name for one in rank(rows, metric="point_hit")),
}))
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with only the core's rooms."""
    copy = tmp_path_factory.mktemp("core") / "reveal_bench"
    shutil.copytree(ROOT / "reveal_bench", copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "dataset_cards", copy / "dataset_cards")  # as a wheel has them
    for room in ABOVE_THE_CORE:
        shutil.rmtree(copy / room)
    return copy


def test_the_core_does_the_main_job_alone(core: Path, twin_of: Callable[[str], Path], tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(core.parent)!r})\n{WORK}"
    command = [sys.executable, "-P", "-c", code, str(twin_of("chexlocalize")), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["package"] == str(core)
    assert result["problems"] == []
    assert result["ok"] == [True, True]
    assert min(*result["n_estimates"], result["n_differences"]) > 0
    assert result["ranked"] == ["a", "b"]


def test_the_core_stays_small(core: Path) -> None:
    files = [path for end in ("*.py", "*.c", "*.h") for path in core.rglob(end)]
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= MOST_LINES
