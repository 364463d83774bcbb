"""The public side of boards, and what a server refuses to have in its folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reveal_leaderboard.boards.catalogue import read_published, read_published_boards

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS, REVEAL_LABELS
from reveal_bench.kinds.findings.records import StudyRecord
from tests.leaderboard.conftest import Board


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten studies of ten patients, half of them held out; the private half beside it."""
    folder = tmp_path_factory.mktemp("studies") / "public"
    records = [StudyRecord(f"study{i}", f"patient{i}", (REVEAL_LABELS[i],)) for i in range(10)]
    build_folder(
        {"test": iter(records)},
        folder,
        BENCHMARKS["reveal-cxr"],
        version="2.0.0",
        pixels="withhold",
        holdout=folder.with_name("private"),
        holdout_split="test",
        synthetic=True,
    )
    return folder


@pytest.fixture
def copy(board: Board, tmp_path: Path) -> Path:
    """A public folder to spoil."""
    return Path(shutil.copytree(board.folder, tmp_path / "copy"))


def test_a_localization_benchmark(board: Board) -> None:
    published = read_published(board.folder, "holdout")
    assert (published.name, published.version, published.split) == ("chexlocalize", "1.0.0", "holdout")
    assert (published.kind, published.title, published.items) == ("localization", "CheXlocalize", "images")
    assert published.findings == CHEXLOCALIZE_FINDINGS
    assert published.n_items == pq.read_table(published.manifest_file).num_rows > 0
    assert published.key == ("chexlocalize", "1.0.0")
    assert published.synthetic


def test_a_findings_benchmark(studies: Path) -> None:
    published = read_published(studies, "holdout")
    assert (published.name, published.version, published.kind) == ("reveal-cxr", "2.0.0", "findings")
    assert (published.findings, published.n_items, published.items) == (REVEAL_LABELS, 5, "studies")
    facts = {"kind": "findings", "findings": list(REVEAL_LABELS), "part": "", "n_studies": 5, "synthetic": True}
    assert json.loads(json.dumps(published.facts())) == facts


def test_a_split_with_references_is_refused(board: Board, studies: Path) -> None:
    for folder in (board.folder, studies):
        with pytest.raises(
            ValueError, match="contains the references of split 'released', which a leaderboard's server"
        ):
            read_published(folder, "released")
    for folder in (board.holdout, studies.with_name("private")):
        with pytest.raises(ValueError, match="contains the references of split 'holdout'"):
            read_published(folder, "holdout")


@pytest.mark.parametrize(
    "place",
    [
        "localization/holdout-00000-of-00001.parquet",
        "multilabel/holdout-00000-of-00001.parquet",
        "masks/holdout-00003-of-00004.parquet",
        "ratings/holdout.parquet",
        "notes/deep/holdout.csv",
        "manifest/holdout-answers.parquet",
        "holdout_inputs/holdout.json",
        "holdout.json",
        "holdout/labels.csv",
    ],
)
def test_a_file_of_the_split_anywhere_else_is_refused(copy: Path, place: str) -> None:
    (copy / place).parent.mkdir(parents=True, exist_ok=True)
    (copy / place).write_bytes(b"")
    with pytest.raises(ValueError, match="contains the references of split 'holdout'"):
        read_published(copy, "holdout")


def test_files_of_other_splits_are_no_matter(copy: Path) -> None:
    (copy / "notes").mkdir()
    (copy / "notes" / "holdouts.csv").write_text("")
    (copy / "notes" / "released-holdout.csv").write_text("")
    assert read_published(copy, "holdout").split == "holdout"


def test_inputs_may_hold_no_reference(copy: Path) -> None:
    shard = copy / "holdout_inputs" / "holdout-00000-of-00001.parquet"
    shard.parent.mkdir(exist_ok=True)
    blank = {
        "image_id": ["a"],
        "labels": pa.array([[]], pa.list_(pa.int64())),
        "source_sha256": pa.array([None], pa.string()),
    }
    pq.write_table(pa.table(blank), shard)
    assert read_published(copy, "holdout").split == "holdout"
    pq.write_table(pa.table({**blank, "labels": [[3]], "secret": ["Edema"]}), shard)
    with pytest.raises(ValueError, match=r"holdout-00000-of-00001.parquet has values in labels, secret"):
        read_published(copy, "holdout")


def test_the_manifest_may_hold_no_reference(copy: Path) -> None:
    file = copy / "manifest" / "holdout.parquet"
    manifest = pq.read_table(file)
    pq.write_table(manifest.append_column("area_px", pa.array(range(len(manifest)))), file)
    with pytest.raises(ValueError, match=r"manifest/holdout.parquet has values in area_px"):
        read_published(copy, "holdout")


def test_what_is_no_board_is_refused(board: Board, copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a dataset folder"):
        read_published(tmp_path / "nothing", "holdout")
    with pytest.raises(ValueError, match=r"one of the splits of .* \(released, holdout\), got 'test'"):
        read_published(board.folder, "test")
    info = copy / "manifest" / "benchmark.json"
    raw = json.loads(info.read_text())
    info.write_text(json.dumps({**raw, "benchmark": "rexecution"}))
    with pytest.raises(ValueError, match=r"contains the references of split 'holdout'.* has values in asked"):
        read_published(copy, "holdout")
    info.write_text(json.dumps({**raw, "benchmark": "own-data"}))
    with pytest.raises(ValueError, match=r"`benchmark` must be one of chexlocalize, .*, got 'own-data'"):
        read_published(copy, "holdout")


def test_versions_of_one_benchmark_are_served_side_by_side(board: Board, studies: Path, copy: Path) -> None:
    info = copy / "manifest" / "benchmark.json"
    info.write_text(json.dumps({**json.loads(info.read_text()), "version": "1.1.0"}))
    boards = read_published_boards([(board.folder, "holdout"), (copy, "holdout"), (studies, "holdout")])
    assert list(boards) == [("chexlocalize", "1.0.0"), ("chexlocalize", "1.1.0"), ("reveal-cxr", "2.0.0")]
    with pytest.raises(
        ValueError, match=r"each version of a benchmark must be given once: .* both chexlocalize 1\.0\.0"
    ):
        read_published_boards([(board.folder, "holdout"), (board.folder, "holdout")])
