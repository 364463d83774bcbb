"""The kinds of benchmark, and everything that differs between them.

To add a kind of benchmark, write a package here that defines a :class:`~reveal_bench.kinds.kind.Kind` and its parts,
and list it in :data:`KINDS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.kinds.detection import DETECTION
from reveal_bench.kinds.findings import FINDINGS
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.localization import LOCALIZATION
from reveal_bench.kinds.tasks import TASKS

if TYPE_CHECKING:
    from reveal_bench.kinds.folder import FolderInfo

__all__ = ["KINDS", "known_kind"]

KINDS: dict[str, AnyKind] = {kind.name: kind for kind in (LOCALIZATION, FINDINGS, TASKS, DETECTION)}


def known_kind(info: FolderInfo) -> AnyKind:
    """Return the kind of a dataset folder's benchmark; the benchmark must be in BENCHMARKS.

    Raises
    ------
    ValueError
        If the benchmark is not in BENCHMARKS.
    """
    if info.benchmark not in BENCHMARKS:
        raise ArgumentError("benchmark", f"must be one of {', '.join(BENCHMARKS)}", repr(info.benchmark))
    return KINDS[info.kind]
