"""What may be shown of one submission's rows, before it is rounded: each kind says which figures, a board how finely.

A *cell* is what a figure counts: the cases of a finding, the scored answers of a criterion. Those with fewer than
`min_cell` are hidden. Which ones are hidden follows from the references alone, never from what was submitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reveal_bench.metrics.bootstrap import Estimate

__all__ = ["Disclosure", "disclosure_of_findings"]


@dataclass(frozen=True, slots=True)
class Disclosure:
    """Figures that may be shown.

    Attributes
    ----------
    estimates : those that may be shown; `n` is the size of the cell, of a macro the groups in it
    shown, hidden : groups, in table order
    note : what is not shown and why, for people
    """

    estimates: Sequence[Estimate]
    shown: tuple[str, ...]
    hidden: tuple[str, ...]
    note: str


def disclosure_of_findings(
    estimates: Sequence[Estimate], findings: Sequence[str], shown: Sequence[str], *, counted: str, min_cell: int
) -> Disclosure:
    """A disclosure of findings, or of labels, with its note; `counted` says what a cell holds."""
    hidden = tuple(finding for finding in findings if finding not in shown)
    if not shown:
        note = f"Nothing can be shown: every finding has fewer than {min_cell} {counted} in this split."
    elif not hidden:
        note = "All findings are shown."
    else:
        note = f"Fewer than {min_cell} {counted}, not shown and not in any macro: {', '.join(hidden)}."
    return Disclosure(estimates, tuple(shown), hidden, note)
