"""Limits on uploaded files, and on the resources of the child process that reads or scores a file.

Conventions
-----------
Sizes are in bytes, times in seconds. If a file exceeds :data:`BOARD_LIMITS`, the sender gets an error with the line. If
a child exceeds :class:`JailLimits`, it ends, and the sender gets a fixed sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

from reveal_bench.predictions import Limits

MIB = 1 << 20

MOST_MASK_RUNS = 50_000
"""Maximum number of runs of a mask on a board.

A detailed lung outline has about 10,000 runs. A mask of noise has millions. Merging millions of runs with a reference
mask takes seconds, so the duration would reveal whether there is a reference.
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
"""A board's limits.

Files may be three times as large as needed for CheXlocalize's whole test set. A board accepts one point per question,
because a lattice of points would hit every reference. Local scoring accepts several points, like the human benchmark of
CheXlocalize.
"""


@dataclass(frozen=True, slots=True)
class JailLimits:
    """Resource limits of a child process.

    Attributes
    ----------
    memory : address space in addition to the template's (an idle template has about 200 MB in memory)
    cpu_seconds, wall_seconds : processor time and elapsed time; a child that exceeds either is killed
    file_bytes : largest size of each file that the child writes
    open_files : largest number of file descriptors
    answer_bytes : largest size of the child's answer
    """

    memory: int
    cpu_seconds: int
    wall_seconds: float
    file_bytes: int
    open_files: int = 64
    answer_bytes: int = 16 * MIB


PARSE_LIMITS = JailLimits(memory=768 * MIB, cpu_seconds=14, wall_seconds=60.0, file_bytes=256 * MIB)
"""For comparison: parsing CheXlocalize's whole test set takes about 1 s with run lengths, and 10 s with contours."""
SCORE_LIMITS = JailLimits(memory=3072 * MIB, cpu_seconds=600, wall_seconds=900.0, file_bytes=256 * MIB, open_files=1024)
