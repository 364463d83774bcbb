"""Time a curation of paper 004's size, and check its estimated kappas against exact ones.

There are 13,735 studies, of which 1,000 are sampled, 17 readers as in Table S4, and 200 selected studies, divided into
halves of 100. The studies have reports and facts, but no pixels. Suggested labels (``suggested.csv``) are correct as
often as the paper's. In addition, the rules extract labels from all reports, in a separate folder. The script prints
counts and seconds of every step. The script also prints each estimated kappa with its interval beside the exact value,
computed from the simulated readers' error rates; about 95% of exact values must be within their intervals.

    python benchmarks/curation.py [--studies 13735] [--seed 0] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reveal_bench.curation.assign import assign
from reveal_bench.curation.consensus import consensus
from reveal_bench.curation.extract import ReportTable, SuggestionTable, extract
from reveal_bench.curation.folder import CurationFolder, StepRecord
from reveal_bench.curation.report_tables import ReportColumns, SuggestionColumns
from reveal_bench.curation.sample import PAPER_STRATA, sample
from reveal_bench.curation.select import select
from reveal_bench.curation.split import split
from reveal_bench.curation.tables import Assignment, Sampled, read_table
from reveal_bench.curation.votes import import_votes
from reveal_bench.phantom.curation import cast, write_pool, write_readers, write_votes
from reveal_bench.reports.curation import report
from tests.phantom.expected_agreement import expected_agreement


def timed(name: str, work: Callable[[], Any]) -> Any:
    start, cpu = time.perf_counter(), time.process_time()
    done = work()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    counts = {key: value for key, value in done.counts.items() if isinstance(value, int)} if isinstance(
        done, StepRecord) else done  # fmt: skip
    print(f"{name:<13} {wall:7.1f} s, {cpu:6.1f} s of processor  {json.dumps(counts)[:150]}")
    return done


def compare(folder: CurationFolder, truth: dict[str, list[str]]) -> None:
    """Print each estimated kappa beside its exact value."""
    sampled = read_table(folder.path("sample.parquet"), Sampled)
    exact = expected_agreement([(one.labels, truth[one.study_id]) for one in sampled])
    agreement = json.loads(folder.path("agreement.json").read_text(encoding="utf-8"))
    rows = [("pooled", agreement["answers"]["two_categories"], exact.kappa)]
    rows += [(one["label"], one["kappa"], exact.label_kappas[one["label"]]) for one in agreement["labels"]
             if one["label"] in exact.label_kappas]  # fmt: skip
    within = 0
    for name, kappa, value in rows:
        is_within = kappa["low"] <= value <= kappa["high"]
        within += is_within
        interval = f"{kappa['low']:.3f} to {kappa['high']:.3f}"
        print(f"  {name:<22} {kappa['value']:.3f} ({interval})  exact {value:.3f}{'' if is_within else '  outside'}")
    print(f"  {within} of {len(rows)} exact values are within their 95% intervals")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=13_735)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.keep or Path(scratch)
        pool = root / "pool"
        timed("pool", lambda: write_pool(pool, options.studies, options.seed))
        by_rules = CurationFolder.create(root / "by rules", name="By rules", seed=options.seed)
        reports = ReportTable(pool / "reports.csv", ReportColumns("study", "patient", "report"))
        timed("extract/rules", lambda: extract(by_rules, reports))
        folder = CurationFolder.create(root / "curation", name="At the paper's size", seed=options.seed)
        table = SuggestionTable(pool / "suggested.csv", SuggestionColumns("study", "patient", "labels"))
        timed("extract", lambda: extract(folder, table))
        timed("sample", lambda: sample(folder, strata=PAPER_STRATA))
        write_readers(root / "readers.csv")
        timed("assign", lambda: assign(folder, root / "readers.csv"))
        lines = (pool / "truth.jsonl").read_text(encoding="utf-8").splitlines()
        truth = {one["study_uid"]: one["labels"] for one in map(json.loads, lines)}
        suggested = {one.study_id: one.labels for one in read_table(folder.path("sample.parquet"), Sampled)}
        readings = [(one.study_id, one.reader) for one in read_table(folder.path("assignments.parquet"), Assignment)]
        write_votes(root / "votes.csv", cast(readings, suggested, truth, options.seed))
        timed("import-votes", lambda: import_votes(folder, root / "votes.csv"))
        timed("consensus", lambda: consensus(folder))
        timed("select", lambda: select(folder))
        timed("split", lambda: split(folder, pool / "facts.csv", best_of=1))
        timed("report", lambda: report(folder))
        compare(folder, truth)


if __name__ == "__main__":
    main()
