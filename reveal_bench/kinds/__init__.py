"""The kinds of benchmark, and everything that differs between them.

To add a kind, write a package here that defines a :class:`~reveal_bench.kinds.kind.Kind` with its parts, and list it in
:data:`KINDS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.detection import DETECTION
from reveal_bench.kinds.findings import FINDINGS
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.localization import LOCALIZATION
from reveal_bench.kinds.tasks import TASKS

if TYPE_CHECKING:
    from reveal_bench.kinds.folder import FolderInfo

__all__ = ["KINDS", "kind_of"]

KINDS: dict[str, AnyKind] = {kind.name: kind for kind in (LOCALIZATION, FINDINGS, TASKS, DETECTION)}


def kind_of(info: FolderInfo, *, known_only: bool = False) -> AnyKind:
    """Return the kind of a dataset folder's benchmark; a benchmark that is not in BENCHMARKS counts as localization.

    Raises
    ------
    ValueError
        If `known_only` is set and the benchmark is not in BENCHMARKS.
    """
    from reveal_bench.benchmarks import BENCHMARKS

    known = BENCHMARKS.get(info.benchmark)
    if known is None and known_only:
        raise ArgumentError("benchmark", f"must be one of {', '.join(BENCHMARKS)}", repr(info.benchmark))
    return KINDS["localization" if known is None else known.kind]
