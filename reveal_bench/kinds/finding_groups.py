"""Groups of findings with their own macros, such as the head, medium and tail of a long-tailed benchmark.

Conventions
-----------
A group has a name and some of the benchmark's findings; a finding may be in several groups or in none. The folder's own
groups are in the field `finding_groups` of ``manifest/benchmark.json``.

Groups by prevalence are "head" (10% or more of the rows have the finding), "medium" (1% or more) and "tail" (less), the
limits that analyses of the CXR-LT challenges use. Prevalence is computed from all splits with public references, so it
depends neither on the split that is scored nor on the predictions, and reveals nothing of a private holdout.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import check_finding_groups

PREVALENCE = "prevalence"
"""Value that requests the groups head, medium and tail."""
LIMITS = {"head": 0.1, "medium": 0.01, "tail": 0.0}
"""Smallest prevalence of each group by prevalence, the most common group first."""
_RULE = "must be 'prevalence', a JSON file, a mapping of names to findings, or NAME=FINDING,FINDING"


def parse_finding_groups(given: Any, findings: Sequence[str]) -> dict[str, tuple[str, ...]] | str:
    """Return the groups that a user gave as a mapping, a JSON file, or texts such as "head=Edema,Mass".

    Returns
    -------
    the groups, or :data:`PREVALENCE` if groups by prevalence were requested

    Raises
    ------
    ArgumentError, ValueError
        If `given` has another format, a file is unreadable, or for the reasons of :func:`check_finding_groups`.
    """
    texts = [given] if isinstance(given, str | Path) else given
    if isinstance(texts, Mapping):
        return check_finding_groups(texts, findings)
    if not isinstance(texts, Sequence) or not texts or not all(isinstance(text, str | Path) for text in texts):
        raise ArgumentError("finding_groups", _RULE, repr(given))
    if len(texts) == 1 and str(texts[0]) == PREVALENCE:
        return PREVALENCE
    if len(texts) == 1 and "=" not in str(texts[0]):
        return check_finding_groups(_read_file(Path(texts[0])), findings)
    groups: dict[str, list[str]] = {}
    for text in map(str, texts):
        name, is_given, members = text.partition("=")
        if not is_given or name.strip() in groups:
            raise ArgumentError("finding_groups", _RULE if not is_given else "must name each group once", repr(text))
        groups[name.strip()] = [member.strip() for member in members.split(",")]
    return check_finding_groups(groups, findings)


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        groups = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArgumentError("finding_groups", _RULE, repr(str(path))) from None
    except ValueError as error:
        raise ValueError(f"{path}: must be JSON: {error}") from None
    if not isinstance(groups, dict):
        raise ValueError(f"{path}: must hold one JSON object, names of groups with lists of findings")
    return groups


def groups_by_prevalence(positives: Mapping[str, int], n_rows: int) -> dict[str, tuple[str, ...]]:
    """Return the groups head, medium and tail with their findings, without empty groups.

    Parameters
    ----------
    positives : finding -> number of rows that have it, in table order
    n_rows : number of all rows

    Examples
    --------
    >>> groups_by_prevalence({"Edema": 300, "Mass": 100, "Nodule": 99, "Hernia": 9}, 1000)
    {'head': ('Edema', 'Mass'), 'medium': ('Nodule',), 'tail': ('Hernia',)}
    """
    groups: dict[str, list[str]] = {name: [] for name in LIMITS}
    for finding, n in positives.items():
        groups[next(name for name, least in LIMITS.items() if n >= least * n_rows)].append(finding)
    return {name: tuple(members) for name, members in groups.items() if members}


def count_positives(records: Sequence[Any], findings: Sequence[str]) -> tuple[dict[str, int], int]:
    """Return (finding -> number of records that have it, number of records)."""
    counts = Counter(label for record in records for label in set(record.labels))
    return {finding: counts[finding] for finding in findings}, len(records)
