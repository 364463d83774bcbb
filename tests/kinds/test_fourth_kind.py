"""A fourth kind, sketched in tests/kinds/toy alone: linted, scored, compared, and scored as a board's children do it.

How far it goes: a dataset folder is written by hand, because cards and tallies of :mod:`reveal_bench.dataset` still
know the kinds by name; the children's jobs run in this process, because a confined child imports the packages alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reveal_leaderboard.boards.catalogue import Published
from reveal_leaderboard.boards.standings import board_metrics
from reveal_leaderboard.custody import parsing, scoring
from reveal_leaderboard.custody.answers import CompareAnswer, RankAnswer, ScoreAnswer, check_released
from reveal_leaderboard.custody.canonical import dump_manifest, load_manifest, read_canonical
from reveal_leaderboard.release.release import primary_figure
from reveal_leaderboard.settings import ReleasePolicy

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.evaluation.compare import compare, rank
from reveal_bench.evaluation.score import lint_file, score_file
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import FolderInfo, read_folder_info
from tests.kinds.toy import TUBES, Toy
from tests.kinds.toy.scoring import METRIC

N = 60
"""Films; every third tube is in a wrong place, and two films are of one patient."""
POLICY = ReleasePolicy(min_cell=10, bands=(10, 20), n_resamples=200)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, Toy.name, Toy())
    monkeypatch.setitem(BENCHMARKS, TUBES.name, TUBES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset folder as a build would lay it out, without its card."""
    kind, root = KINDS["tubes"], tmp_path / "folder"
    rows = [{"film_id": f"f{i:02d}", "patient_id": f"p{i // 2}", "is_right": i % 3 > 0} for i in range(N)]
    for place, table in (
        (f"{kind.config}/test-00000-of-00001.parquet", pa.Table.from_pylist(rows, kind.features(TUBES).arrow_schema)),
        ("manifest/test.parquet", pa.Table.from_pylist([kind.manifest_row(row, ()) for row in rows],
                                                       kind.manifest_schema())),
    ):  # fmt: skip
        (root / place).parent.mkdir(parents=True)
        pq.write_table(table, root / place)
    info = FolderInfo(TUBES.name, "1.0.0", True, "all", 8, TUBES.findings, {"test": {"n_films": N}})
    (root / "manifest" / "benchmark.json").write_text(info.to_json())
    return root


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A file that is always right, and one that says "right" of every film."""
    paths = tmp_path / "sharp.jsonl", tmp_path / "fair.jsonl"
    for path, says in zip(paths, (lambda i: i % 3 > 0, lambda i: True), strict=True):
        lines = [json.dumps({"film_id": f"f{i:02d}", "is_right": says(i)}) for i in range(N)]
        path.write_text("\n".join(lines) + "\n")
    return paths


def test_at_home(folder: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    assert lint_file(files[0], folder, "test").ok
    (tmp_path / "wrong.jsonl").write_text('{"film_id": "f00", "is_right": "yes"}\n')
    assert [p.rule for p in lint_file(tmp_path / "wrong.jsonl", folder, "test").problems] == ["answer"]
    sharp, fair = (score_file(path, folder, "test", n_resamples=200) for path in files)
    assert [e.value for e in sharp.estimates] == [1, 1]
    assert fair.estimates[0].value == pytest.approx(2 / 3)
    assert 0.5 < fair.estimates[0].low < 2 / 3 < fair.estimates[0].high < 0.8
    (macro, one) = compare(sharp.rows, fair.rows, n_resamples=200)
    assert (macro.metric, one.finding, one.value) == (METRIC, "Tube", pytest.approx(1 / 3))
    places = rank({"sharp": sharp.rows, "fair": fair.rows}, metric=METRIC, n_resamples=200)
    assert [(place.name, place.rank) for place in places] == [("sharp", 1), ("fair", 2)]


def test_on_a_board(folder: Path, files: tuple[Path, Path], tmp_path: Path) -> None:
    kind = KINDS["tubes"]
    published = Published(folder, read_folder_info(folder), kind.read_manifest(folder, "test"), "tubes")
    assert (published.items, published.n_items, published.findings) == ("films", N, ("Tube",))
    assert [metric.name for metric in board_metrics("tubes")] == [METRIC]
    manifest = load_manifest(dump_manifest(published.manifest))
    assert manifest == published.manifest
    vault, prints = [tmp_path / f"{name}.npz" for name in "ab"], []
    for upload, rows in zip(files, vault, strict=True):
        canonical = tmp_path / f"{upload.stem}.npz"
        with upload.open("rb") as given, canonical.open("wb") as sink:
            options = {"allow_missing": False, "is_of_other_version": False, "name": "x.jsonl"}
            said = json.loads(parsing.parse(options, [given.fileno(), sink.fileno()], manifest))
        assert bool(said["signs"]) == (upload.stem == "fair")
        assert read_canonical(canonical, manifest) == lint_file(upload, folder, "test").predictions
        policy = {name: getattr(POLICY, name) for name in POLICY.__dataclass_fields__}
        arguments = {"holdout": str(folder), "split": "test", "policy": policy, "key": "00" * 32, "thresholds": 0.5}
        with canonical.open("rb") as given, rows.open("wb") as sink, open(os.devnull, "wb") as final:
            handles = [given.fileno(), sink.fileno(), final.fileno()]
            answer = ScoreAnswer.model_validate_json(scoring.score(arguments, handles, None))
        figure = primary_figure(check_released(answer.released, POLICY))
        assert figure is not None
        assert (figure.metric, figure.value) == (METRIC, 1.0 if upload.stem == "sharp" else 0.67)
        prints.append(answer.fingerprint.content)
    assert len(set(prints)) == 2
    with vault[0].open("rb") as a, vault[1].open("rb") as b:
        arguments = {"ids": ["a", "b"], "policy": policy, "groups": {}, "paired": True}
        ranked = RankAnswer.model_validate_json(scoring.rank(arguments, [a.fileno(), b.fileno()], None))
        compared = CompareAnswer.model_validate_json(scoring.compare(arguments, [a.fileno(), b.fileno()], None))
    assert [ranked.entries[name].tier for name in "ab"] == ["A", "B"]
    assert compared.kind == "tubes"
    assert [(row.value, row.told_apart) for row in compared.rows] == [(0.33, True), (0.33, True)]
