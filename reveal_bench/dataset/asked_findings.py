"""Restriction of a download's records to some findings, for a benchmark that asks a subset.

The dataset folder then contains the references and readings of only these findings. It lists the other findings as
`not_asked`, so that prediction files with more findings than asked can be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import Benchmark
from reveal_bench.findings import select_names
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import select_findings
from reveal_bench.sources.source import Extra, Record, Records


def ask_findings(benchmark: Benchmark, names: Sequence[str] | str) -> Benchmark:
    """Return the benchmark with only the findings in `names`, which may include names of its groups of findings.

    Raises
    ------
    ArgumentError
        If a name is unknown, or the benchmark has no findings.
    """
    groups = {} if isinstance(benchmark.finding_groups, str) else benchmark.finding_groups
    if not benchmark.findings:
        raise ArgumentError("findings", f"must be left out: {benchmark.name} has no findings", str(names))
    asked = select_findings(names, benchmark.name, groups, benchmark.findings)
    others = tuple(finding for finding in benchmark.findings if finding not in asked)
    kept = {name: tuple(finding for finding in group if finding in asked) for name, group in groups.items()}
    return replace(
        benchmark,
        findings=select_names(benchmark.findings, asked),
        finding_groups=benchmark.finding_groups if not groups else {name: own for name, own in kept.items() if own},
        not_asked=others,
    )


def asked_records(splits: Mapping[str, Iterable[Record]], benchmark: Benchmark) -> dict[str, Iterable[Record]]:
    """Return the records of each split with the references of only the benchmark's findings."""
    with_findings: Any = KINDS[benchmark.kind].data.with_findings

    def restricted(records: Iterable[Record]) -> Iterable[Record]:
        def make() -> Iterator[Record]:
            return (with_findings(record, benchmark.findings) for record in records)

        return Records(make, len(records)) if isinstance(records, Sized) else make()

    return {split: restricted(records) for split, records in splits.items()}


def asked_extras(extras: Sequence[Extra], benchmark: Benchmark) -> list[Extra]:
    """Return the further tables without entries of findings that the benchmark does not ask."""
    return [
        extra if extra.findings is None else replace(extra, rows=extra.findings.asked(extra.rows, benchmark.findings))
        for extra in extras
    ]
