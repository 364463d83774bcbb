"""A small curation, done by the real steps, whose every number is known by hand.

87 studies: 40 with COPD, of patients c00 to c39, and a second one of each of c00 to c03; 40 with two labels; 3 without.
Strata of 20 and 50: 60 are sampled, 10 short. Three readers read all; of every fourth study, in the order of the ids,
only the first reader agrees to all, and the others say nothing; of the others all three agree. So 45 are eligible: 15
with COPD and 30 without, of which 15 fill the target of 30.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from reveal_bench.curation.assign import assign
from reveal_bench.curation.consensus import consensus
from reveal_bench.curation.extract import SuggestionTable, extract
from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.report_tables import SuggestionColumns
from reveal_bench.curation.sample import sample
from reveal_bench.curation.select import select
from reveal_bench.curation.split import split
from reveal_bench.curation.tables import Assignment, Sampled, read_table
from reveal_bench.curation.votes import import_votes

SCRIPT = "<script>alert('me & you')</script>"
FORMULA = "=1+1"
LONG = "Doctor-" + "long" * 30
READERS = (SCRIPT, FORMULA, LONG)


def write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def begin(root: Path, *, name: str = "Chest <b>films</b>") -> CurationFolder:
    """A curation with suggested labels."""
    root.mkdir(exist_ok=True)
    rows = [(f"study-a{i:02d}", f"patient-c{i:02d}", "COPD") for i in range(40)]
    rows += [(f"study-b{i:02d}", f"patient-d{i:02d}", "Airspace opacity; Pleural effusion") for i in range(40)]
    rows += [(f"study-e{i:02d}", f"patient-e{i:02d}", "None") for i in range(3)]
    rows += [(f"study-z{i:02d}", f"patient-c{i:02d}", "COPD") for i in range(4)]
    table = write_csv(root / "suggested.csv", ("study", "patient", "labels"), rows)
    folder = CurationFolder.create(root / "curation", name=name, seed=3)
    extract(folder, SuggestionTable(table, SuggestionColumns("study", "patient", "labels")))
    return folder


def read(folder: CurationFolder, *, all_agree: bool = False, readers: Sequence[str] = READERS) -> None:
    """Sample, assign, votes and consensus."""
    outside = folder.root.parent
    sample(folder, strata={1: 20, 2: 50})
    assign(folder, write_csv(outside / "readers.csv", ("reader", "capacity"), [(one, 60) for one in readers]))
    order = [one.study_id for one in read_table(folder.path("sample.parquet"), Sampled)]
    rows = []
    for one in read_table(folder.path("assignments.parquet"), Assignment):
        agrees = all_agree or order.index(one.study_id) % 4 or one.reader == readers[0]
        rows.append((one.study_id, one.reader, "agree_all" if agrees else "disagree"))
    import_votes(folder, write_csv(outside / "votes.csv", ("study", "reader", "answer"), rows))
    consensus(folder, n_resamples=50)


def finish(folder: CurationFolder, *, with_facts: bool = True) -> None:
    """Select and split; of every study in turn sex is F or M, and of every third the maker is not known."""
    select(folder, target=30)
    ids = [f"study-{letter}{i:02d}" for letter in "abz" for i in range(40)]
    makers = ("Acme", "<i>Röntgen</i>", "")
    rows = [(study, "FM"[i % 2], makers[i % 3], 80 + i % 3) for i, study in enumerate(ids)]
    facts = write_csv(folder.root.parent / "facts.csv", ("study", "sex", "maker", "kvp"), rows)
    split(folder, facts if with_facts else None, best_of=3, key="study")


def whole(root: Path) -> CurationFolder:
    """Return a folder in which all steps are done."""
    folder = begin(root)
    read(folder)
    finish(folder)
    return folder
