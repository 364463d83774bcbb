"""A curation folder whose steps before the consensus are done, with the tables that a test gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.tables import Consensus, Labels, Revision, Sampled, Selected, Vote, write_table

AO, AN, CM, COPD = "Airspace opacity", "Aneurysm", "Cardiomegaly", "COPD"


def make_folder(root: Path, sampled: Sequence[Sampled], votes: Sequence[Vote], *, seed: int = 7) -> CurationFolder:
    """Ready for the consensus."""
    folder = CurationFolder.create(root, name="Chest", seed=seed)
    done(folder, "extract", "suggestions.parquet", [], Sampled)
    done(folder, "sample", "sample.parquet", sampled, Sampled)
    done(folder, "assign", "assignments.parquet", [], Sampled)
    done(folder, "import-votes", "votes.parquet", votes, Vote)
    return folder


def make_folder_to_split(root: Path, selected: Sequence[Selected], *, seed: int = 7) -> CurationFolder:
    """Ready for the split."""
    folder = make_folder(root, [], [], seed=seed)
    done(folder, "consensus", "consensus.parquet", [], Consensus)
    done(folder, "select", "selection.parquet", selected, Selected)
    return folder


def done(folder: CurationFolder, step: str, name: str, rows: Sequence[Any], row: type, *, redo: bool = False) -> None:
    """`step` with a table as its output."""

    def work(scratch: Path) -> Mapping[str, Any]:
        write_table(scratch / name, rows, row)
        return {}

    folder.run(step, {"rows": repr(rows)}, work, writes=(name,), redo=redo)


def study(study_id: str, *labels: str) -> Sampled:
    return Sampled(study_id, f"patient of {study_id}", labels, len(labels))


class Stub:
    """A reviser with fixed labels for each comment; None means no labels."""

    signature = "stub v1"

    def __init__(self, labels: Mapping[str, Labels | None], *, backwards: bool = False) -> None:
        self.labels, self.backwards = labels, backwards
        self.asked: list[tuple[Vote, Labels]] = []

    def __call__(self, votes: Sequence[tuple[Vote, Labels]]) -> Iterator[Revision]:
        self.asked += votes
        for vote, _ in reversed(votes) if self.backwards else votes:
            labels = self.labels[vote.comment]
            yield Revision(vote.study_id, vote.reader, labels, "nothing" if labels is None else "rules")
