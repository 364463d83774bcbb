"""Limits on uploads, and on the resources that a child may use for one.

Conventions
-----------
Bytes are bytes, times are seconds. Exceeding a limit of :data:`BOARD_LIMITS` is reported to the sender, with the line;
a limit of :class:`JailLimits` ends the child, and its sender receives one fixed sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

from reveal_bench.predictions import Limits

MIB = 1 << 20

MOST_MASK_RUNS = 50_000
"""Maximum runs of one mask on a board. A detailed lung outline has about 10,000. A mask of noise has millions: merging
them takes seconds if there is a reference and no time otherwise, so the duration would reveal labels.
"""

BOARD_LIMITS = Limits(
    file_bytes=96 * MIB,
    expanded_bytes=96 * MIB,
    expansion=30,
    entries=100_000,
    containers=2_000_000,
    values=10_000_000,
    counts_characters=3 * MOST_MASK_RUNS,
    mask_runs=MOST_MASK_RUNS,
    points=1,
    contours=200,
    vertices=20_000,
    polygon_work=1_000_000_000,
    problems=1_000,
)
"""A board's limits. Files may be three times as large as CheXlocalize's whole test set needs. A question may have one
point only, because a lattice of points would hit everything. Local scoring accepts several points, as the human
benchmark does.
"""


@dataclass(frozen=True, slots=True)
class JailLimits:
    """The resources that a child may use.

    Attributes
    ----------
    memory : address space in addition to its template's (an idle template keeps about 200 MB in memory)
    cpu_seconds, wall_seconds : processor time and elapsed time; a child that exceeds either is killed
    file_bytes : size of each file that it may write
    open_files : number of file descriptors
    answer_bytes : size of its answer
    """

    memory: int
    cpu_seconds: int
    wall_seconds: float
    file_bytes: int
    open_files: int = 64
    answer_bytes: int = 16 * MIB


PARSE_LIMITS = JailLimits(memory=768 * MIB, cpu_seconds=14, wall_seconds=60.0, file_bytes=256 * MIB)
"""CheXlocalize's whole test set takes about a second as run lengths, and ten as contours."""
SCORE_LIMITS = JailLimits(memory=3072 * MIB, cpu_seconds=600, wall_seconds=900.0, file_bytes=256 * MIB, open_files=1024)
