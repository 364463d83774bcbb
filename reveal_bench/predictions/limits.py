"""Size limits and options for checking prediction files, which come from unknown senders.

Each limit is checked before the memory it protects is allocated; a file that exceeds a limit is refused with a single
error. The limits were chosen by measuring real decompression bombs: a 305-byte Parquet file that expands to 20 GB, 2 MB
of gzip that contain 8 GB of CSV, and 48 MB of text that repeats ``[],``.
"""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest accepted sizes of a prediction file and its contents.

    Attributes
    ----------
    file_bytes, expanded_bytes : size of the file as sent, and after decompression
    expansion : largest ratio of expanded to compressed bytes, for files that expand to more than 16 MiB; masks as text
        reach about 5
    entries : number of predictions (lines, rows, or entries of a JSON document)
    line_bytes : bytes in one line of JSONL, CSV or TSV
    containers, values : numbers of opening brackets and of commas in a JSON document, which limit its size in memory
    columns : columns in a table
    id_characters, finding_characters, counts_characters : length of an id, of a finding's name and of a mask's
        run-length text
    mask_runs : runs in one mask
    points, contours, vertices : numbers of points and contours in one prediction, and of vertices in all its contours
        together
    polygon_work : cost of filling contours: vertices times rows spanned, summed over the contours of all predictions
    problems : number of problems after which reading stops
    """

    file_bytes: int = 512 * _MIB
    expanded_bytes: int = 512 * _MIB
    expansion: int = 100
    entries: int = 1_000_000
    line_bytes: int = 4 * _MIB
    containers: int = 5_000_000
    values: int = 50_000_000
    columns: int = 32
    id_characters: int = 200
    finding_characters: int = 100
    counts_characters: int = 1_000_000
    mask_runs: int = 1_000_000
    points: int = 100
    contours: int = 1_000
    vertices: int = 100_000
    polygon_work: int = 20_000_000_000
    problems: int = 100_000


@dataclass(frozen=True, slots=True)
class LintOptions:
    """Options for checking a prediction file.

    Attributes
    ----------
    grid : cells per side of the grid, for kinds whose answers may be cells; the manifest's grid by default
    allow_missing : True to warn of unanswered questions, False to refuse a file that has any
    leave_out_unknown : True to ignore answers to questions that the split does not ask, with a warning, False to refuse
        them; True suits a file that answered another version of the split
    any_scale : True to accept scores of findings outside [0, 1], of which only the order counts, as every command does;
        False to refuse them, as leaderboards do
    whole_split : True if answers to a part of the split cannot be scored, as on a leaderboard
    limits : size limits
    name : name of the file in messages, such as its name at upload; the file's own name by default
    """

    grid: int | None = None
    allow_missing: bool = False
    leave_out_unknown: bool = False
    any_scale: bool = False
    whole_split: bool = False
    limits: Limits = Limits()
    name: str | None = None

    def missing_hint(self, missing: str) -> str:
        """Return the remedies for `missing` answers, named in words such as "missing studies"."""
        part = (
            ""
            if self.whole_split
            else "for answers to a part, `--subset IDS` (`bench.select(ids=ids)`) or the run folder; "
        )
        return f"{part}`--allow-missing` (`allow_missing=True`) counts {missing} as misses"

    def part_refusal(self, n_missing: int, n_asked: int) -> str:
        """Return the words that refuse the answers to a part of the questions; empty if there is no such refusal."""
        is_part = self.whole_split and not self.allow_missing and n_missing < n_asked
        return ", and a leaderboard takes no part of a split" if is_part else ""
