"""A dataset folder built from a split: exactly its holdout is private, and its labels are nowhere else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.curation.split import split
from reveal_bench.curation.tables import Placed, Selected, in_order, read_table
from reveal_bench.dataset.build import build_folder
from reveal_bench.kinds.findings.records import read_studies
from reveal_bench.phantom.reveal import write_reveal
from reveal_bench.sources import reveal_cxr
from reveal_bench.sources.ids import keyed_id
from tests.curation.made_folder import make_folder_to_split


@dataclass(frozen=True)
class Made:
    download: Path
    mapping: Path
    placed: list[Placed]


KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A synthetic download of which all studies but one were selected, and their split."""
    pytest.importorskip("pydicom")
    root = tmp_path_factory.mktemp("split")
    download = root / "download"
    write_reveal(download, n_studies=7, long_side=64, seed=4, traps=False)
    lines = (download / "truth.jsonl").read_text(encoding="utf-8").splitlines()
    studies = [json.loads(line) for line in lines]
    selected = [
        Selected(one["study_uid"], one["case_id"], in_order(one["suggested"]), one["n_agree_all"], "most_findings")
        for one in studies[1:]
    ]
    facts = root / "facts.jsonl"
    facts.write_text(
        "".join(json.dumps({"study": one["study_uid"], "sex": one["sex"]}) + "\n" for one in studies),
        encoding="utf-8",
    )
    folder = make_folder_to_split(root / "curation", selected)
    split(folder, facts, best_of=4)
    (download / "labels.csv").unlink()  # another table of that name in the download would be refused
    return Made(download, folder.path("benchmark/mapping.yaml"), read_table(folder.path("split.parquet"), Placed))


def test_exactly_the_holdout_of_the_split_is_private(made: Made, tmp_path: Path) -> None:
    placed = made.placed
    reading = reveal_cxr.read(made.download, mapping=made.mapping, id_key=KEY)
    assert sorted(reading.splits) == ["holdout", "released"]
    out, vault = tmp_path / "dataset", tmp_path / "vault"
    build_folder(
        reading.splits,
        out,
        BENCHMARKS["reveal-cxr"],
        holdout=vault,
        holdout_split="holdout",
        synthetic=True,
        extras=reading.extras,
    )
    for folder, half in ((out, "released"), (vault, "holdout")):
        expected = {keyed_id(KEY, "study", one.study_id): one for one in placed if one.half == half}
        by_study = {one.study_id: one for one in read_studies(folder, half)}
        assert by_study.keys() == expected.keys()
        for study_id, record in by_study.items():
            assert record.labels == expected[study_id].labels
            assert record.n_agree_all == expected[study_id].n_agree_all
            assert record.patient_id == keyed_id(KEY, "patient", expected[study_id].patient_id)
    inputs = pq.read_table(out / "holdout_inputs").to_pylist()
    assert len(inputs) == sum(one.half == "holdout" for one in placed)
    assert not any(row["labels"] or row["agreement"] is not None for row in inputs)


def test_without_a_private_folder_nothing_is_built(made: Made, tmp_path: Path) -> None:
    reading = reveal_cxr.read(made.download, mapping=made.mapping, id_key=KEY)
    with pytest.raises(
        ValueError,
        match="`holdout` must name a folder because the records have the private split 'holdout', got none",
    ):
        build_folder(reading.splits, tmp_path / "dataset", BENCHMARKS["reveal-cxr"])
    assert not (tmp_path / "dataset").exists()
