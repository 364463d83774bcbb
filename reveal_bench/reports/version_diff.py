"""Differences between two versions of a dataset folder, for release notes.

Rows are matched by the key of the main config (image, study or task).

Each row is first reduced to a digest per column; only rows that differ are read again and compared in full, so that
neither folder must fit into memory. Pictures are compared by the hash of their pixels. Without the private folders,
only two facts are reported for splits with private references: the number of rows, and the rows that became private or
public according to the manifests.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reveal_bench.dataset.preview import PREVIEW
from reveal_bench.dataset.tables import MANIFEST, DatasetFolder, open_folder, read_table, tables_of
from reveal_bench.kinds.localization.records import READERS
from reveal_bench.kinds.rows import Row
from reveal_bench.masks import Rle, decode_mask
from reveal_bench.words import count_text

SHOWN = 20
"""Largest number of entries in a section of the text."""
CODED = {"labels", "label_status", "label_vector", "annotations", "points", "missing"}
"""Columns whose values change if the vocabulary changes."""
STATUS = {1: "present", 0: "absent", -1: "uncertain", None: "unlabelled"}


@dataclass(frozen=True, slots=True)
class Moved:
    """A row that moved from one split to another."""

    key: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Relabelled:
    """A finding whose status changed; a status is "present", "absent", "uncertain" or "unlabelled"."""

    key: str
    finding: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Redrawn:
    """A reader's drawing of a finding that was added, removed or changed.

    `iou` compares the masks of the two versions or, without masks, the tight boxes.
    """

    key: str
    finding: str
    reader: str
    change: str
    iou: float | None = None


@dataclass
class FolderDiff:
    """All differences between two versions; all pairs are (before, after).

    Attributes
    ----------
    findings : findings removed from the vocabulary, and findings added to it
    columns : (config, column, type before, type after) of every column that was added or removed (type None) or has a
        new type
    rows : dict from (config, split) to numbers of rows, None in a version without the split; only if the numbers differ
    added, removed : dict from split to keys of rows
    held : dict from split before to keys of rows that were public and are now in a private holdout
    released : dict from split after to keys of rows that were in a private holdout and are now public
    other : dict from column to keys of rows that differ in it; labels, drawings and pixels are excluded
    repictured : keys of rows whose pixels differ
    unhashed : keys of rows whose pixels cannot be compared, because one version has no hash of the pixels
    """

    benchmark: str
    versions: tuple[str, str]
    findings: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    columns: list[tuple[str, str, str | None, str | None]] = field(default_factory=list)
    rows: dict[tuple[str, str], tuple[int | None, int | None]] = field(default_factory=dict)
    added: dict[str, list[str]] = field(default_factory=dict)
    removed: dict[str, list[str]] = field(default_factory=dict)
    held: dict[str, list[str]] = field(default_factory=dict)
    released: dict[str, list[str]] = field(default_factory=dict)
    moved: list[Moved] = field(default_factory=list)
    relabelled: list[Relabelled] = field(default_factory=list)
    redrawn: list[Redrawn] = field(default_factory=list)
    repictured: list[str] = field(default_factory=list)
    unhashed: list[str] = field(default_factory=list)
    other: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if the data are the same; the version may differ."""
        lists = (self.columns, self.rows, self.added, self.removed, self.moved, self.relabelled, self.redrawn)
        gone = (self.held, self.released)
        return not any((*lists, *gone, *self.findings, self.repictured, self.unhashed, self.other))

    def to_document(self) -> dict[str, Any]:
        """Return all differences as JSON values."""
        rows = [{"config": c, "split": s, "before": a, "after": b} for (c, s), (a, b) in self.rows.items()]
        return {"schema": 1, **asdict(self), "rows": rows}

    def to_text(self) -> str:
        """Return the differences as Markdown, for release notes."""
        before, after = self.versions
        lines = [f"{self.benchmark} {before} -> {after}"]
        if self.is_empty:
            return lines[0] + "\n\nNo differences in the data.\n"
        lines += [f"{config}/{split}: {_rows_text(a, b)}" for (config, split), (a, b) in self.rows.items()]
        for word, findings in zip(("no longer in", "new in"), self.findings, strict=True):
            lines += [f"{word} the vocabulary: {', '.join(findings)}"] if findings else []
        lines += [f"{config}: {_column_text(name, a, b)}" for config, name, a, b in self.columns]
        for heading, keys in (
            ("Added to {}", self.added),
            ("Removed from {}", self.removed),
            ("Moved from {} to the private holdout", self.held),
            ("Moved from the private holdout to {}", self.released),
        ):
            for split, names in keys.items():
                lines += _section(heading.format(split), names)
        lines += _section("Moved", [f"{m.key}: {m.before} -> {m.after}" for m in self.moved])
        labels = [f"{r.key}: {r.finding} {r.before} -> {r.after}" for r in self.relabelled]
        lines += _section("Relabelled", labels)
        lines += _section("Redrawn", [_redrawn_text(drawing) for drawing in self.redrawn])
        lines += _section("Other pixels", self.repictured)
        lines += _section("No hash to compare pixels", self.unhashed)
        for name, changed in self.other.items():
            lines += _section(f"Other {name}", changed)
        return "\n".join(lines) + "\n"


def diff_folders(a: Path, b: Path, *, holdouts: tuple[Path, Path] | None = None) -> FolderDiff:
    """Return the differences between two dataset folders, `a` before and `b` after.

    Parameters
    ----------
    holdouts : (before, after), the private folders, which are then also compared

    Raises
    ------
    ValueError
        If a folder is not a dataset folder, or the folders belong to different benchmarks.
    """
    before, after = open_folder(Path(a)), open_folder(Path(b))
    if before.info.benchmark != after.info.benchmark:
        raise ValueError(f"{b} must have the benchmark of {a}, {before.info.benchmark}, got {after.info.benchmark}")
    sides = [[before], [after]]
    for side, private in zip(sides, holdouts or (), strict=False):
        side.append(open_folder(Path(private)))
        if side[0].info.benchmark != side[1].info.benchmark:
            rule = f"must be the holdout of {side[0].info.benchmark}"
            raise ValueError(f"{private} {rule}, got that of {side[1].info.benchmark}")
    diff = FolderDiff(before.info.benchmark, (before.info.version, after.info.version))
    was, now = before.benchmark.findings, after.benchmark.findings
    diff.findings = ([name for name in was if name not in now], [name for name in now if name not in was])
    diff.columns = _column_changes(before, after)
    diff.rows = _row_changes(sides[0], sides[1])
    old, new = _digests(sides[0]), _digests(sides[1])
    _compare_ids(diff, old, new, _held(before), _held(after))
    changed = {key: {column for column in old[key][1].keys() & new[key][1].keys()
                     if old[key][1][column] != new[key][1][column]} for key in old if key in new}  # fmt: skip
    changed = {key: columns for key, columns in changed.items() if columns}
    old_rows, new_rows = _full_rows(sides[0], set(changed)), _full_rows(sides[1], set(changed))
    for key in changed:
        _compare_rows(diff, key, changed[key], (before, old_rows[key]), (after, new_rows[key]))
    return diff


Digests = dict[str, tuple[str, dict[str, bytes]]]
"""Dict from key to (split, dict from column to digest)."""


def _main_rows(folders: Sequence[DatasetFolder]) -> Iterator[tuple[str, str, Row]]:
    """Yield (split, key, row without pictures) of every row with references."""
    for folder in folders:
        kind = folder.kind
        for table in tables_of(folder):
            if table.config == kind.config:
                images = kind.table.image_columns
                columns = [name for name in kind.table.features(folder.benchmark) if name not in images]
                for row in (row for batch in read_table(table, columns) for row in batch):
                    yield table.split, row[kind.key], row


def _digests(folders: Sequence[DatasetFolder]) -> Digests:
    return {
        key: (split, {name: hashlib.sha256(repr(value).encode()).digest()[:8] for name, value in row.items()})
        for split, key, row in _main_rows(folders)
    }


def _full_rows(folders: Sequence[DatasetFolder], keys: set[str]) -> dict[str, Row]:
    return {key: row for _, key, row in _main_rows(folders) if key in keys}


def _held(folder: DatasetFolder) -> set[str]:
    """Return the keys of private rows, which the public manifests name."""
    tables = [table for table in tables_of(folder) if table.config == MANIFEST and table.split in folder.private_splits]
    key = folder.kind.key
    return {row[key] for table in tables for batch in read_table(table, [key]) for row in batch}


def _compare_ids(diff: FolderDiff, old: Digests, new: Digests, was_held: set[str], is_held: set[str]) -> None:
    for one, other, gone, hidden, elsewhere in (
        (old, new, diff.removed, diff.held, is_held),
        (new, old, diff.added, diff.released, was_held),
    ):
        for key, (split, _) in one.items():
            if key not in other:
                (hidden if key in elsewhere else gone).setdefault(split, []).append(key)
    diff.moved = [
        Moved(key, split, new[key][0]) for key, (split, _) in old.items() if key in new and new[key][0] != split
    ]


def _compare_rows(
    diff: FolderDiff, key: str, columns: set[str], before: tuple[DatasetFolder, Row], after: tuple[DatasetFolder, Row]
) -> None:
    (old_folder, old), (new_folder, new) = before, after
    was, now = _labels(old, old_folder.benchmark.findings), _labels(new, new_folder.benchmark.findings)
    relabelled = [Relabelled(key, finding, was.get(finding, "unlabelled"), now.get(finding, "unlabelled"))
                  for finding in {**was, **now} if was.get(finding) != now.get(finding)]  # fmt: skip
    redrawn = list(_redrawn(key, _drawings(old, old_folder), _drawings(new, new_folder)))
    repictured, unhashed = _pixel_changes(_pixels(old), _pixels(new))
    diff.relabelled += relabelled
    diff.redrawn += redrawn
    diff.repictured += [key] if repictured else []
    diff.unhashed += [key] if unhashed else []
    reported = {"labels", "label_status", "label_vector"} if relabelled else set()
    reported |= {"annotations"} if redrawn else set()
    reported |= CODED if old_folder.benchmark.findings != new_folder.benchmark.findings else set()
    reported |= {"pixel_sha256", "source_sha256", "pixel_pipeline", "image_facts"} if repictured else set()
    reported |= {"pixel_sha256"} if unhashed else set()
    for column in sorted(columns - reported):
        for name in _places(column, old[column], new[column]):
            diff.other.setdefault(name, []).append(key)


def _places(column: str, old: Any, new: Any) -> list[str]:
    """Return the fields that differ between two lists of structs of equal length, else the whole column."""
    if not (isinstance(old, list) and isinstance(new, list)) or len(old) != len(new):
        return [column]
    if not all(isinstance(entry, dict) for entry in (*old, *new)):
        return [column]
    fields = {name for a, b in zip(old, new, strict=True) for name in {**a, **b} if a.get(name) != b.get(name)}
    return [f"{column}.{name}" for name in sorted(fields)]


def _labels(row: Row, findings: Sequence[str]) -> dict[str, str]:
    if "label_status" in row:
        return {finding: STATUS[status] for finding, status in (row["label_status"] or {}).items()}
    if row.get("label_vector") is not None:
        return {finding: STATUS[status] for finding, status in zip(findings, row["label_vector"], strict=True)}
    return {}


def _drawings(row: Row, folder: DatasetFolder) -> dict[tuple[str, str], Row]:
    findings = folder.benchmark.findings
    drawings = {}
    for annotation in row.get("annotations") or ():
        reader = annotation["reader_id"] or READERS[annotation["reader"]]
        drawings[findings[annotation["label"]], reader] = annotation
    return drawings


def _redrawn(key: str, old: Mapping[tuple[str, str], Row], new: Mapping[tuple[str, str], Row]) -> Iterator[Redrawn]:
    for finding, reader in {**old, **new}:
        was, now = old.get((finding, reader)), new.get((finding, reader))
        if was is None or now is None:
            yield Redrawn(key, finding, reader, "added" if was is None else "removed")
        elif {**was, "label": None} != {**now, "label": None}:  # codes may change with the vocabulary
            yield Redrawn(key, finding, reader, "changed", _iou(was, now))


def _iou(was: Row, now: Row) -> float | None:
    """Return the IoU of the masks or, without masks, of the tight boxes; None if neither can be compared."""
    if was["rle"] is not None and now["rle"] is not None:
        if was["rle"]["size"] != now["rle"]["size"]:
            return None
        a, b = (decode_mask(Rle(tuple(side["rle"]["size"]), side["rle"]["counts"])) for side in (was, now))
        union = int((a | b).sum())
        return int((a & b).sum()) / union if union else None
    if was["bbox_xywh"] is None or now["bbox_xywh"] is None:
        return None
    (ax, ay, aw, ah), (bx, by, bw, bh) = was["bbox_xywh"], now["bbox_xywh"]
    wide = max(0.0, min(ax + aw, bx + bw) - max(ax, bx))
    high = max(0.0, min(ay + ah, by + bh) - max(ay, by))
    both = wide * high
    return float(both / (aw * ah + bw * bh - both))


def _pixels(row: Row) -> list[str | None]:
    if "pixel_sha256" in row:
        return [row["pixel_sha256"]]
    facts = [*(row.get("image_facts") or ()), *(row.get("prior_image_facts") or ())]
    return [entry["pixel_sha256"] for entry in facts]


def _pixel_changes(old: Sequence[str | None], new: Sequence[str | None]) -> tuple[bool, bool]:
    """Return (repictured, unhashed).

    `repictured` is True if the pixels of a picture or the number of pictures changed, `unhashed` if only one version
    has the hash of a picture.
    """
    if len(old) != len(new):
        return True, False
    pairs = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    return any(None not in pair for pair in pairs), any(None in pair for pair in pairs)


def _schemas(folder: DatasetFolder) -> dict[tuple[str, str], str]:
    import pyarrow.parquet as pq

    return {
        (table.config, column.name): _type_text(column.type)
        for table in tables_of(folder)
        if table.config != PREVIEW
        for column in pq.read_schema(table.path)
    }


def _type_text(kind: object) -> str:
    """Return a column's type as text; format 1's lists of fixed length are written as lists of any length."""
    return re.sub(r">\[\d+\]", ">", " ".join(str(kind).split()).replace("fixed_size_list<", "list<"))


def _column_changes(before: DatasetFolder, after: DatasetFolder) -> list[tuple[str, str, str | None, str | None]]:
    old, new = _schemas(before), _schemas(after)
    return [(*name, old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)]


def _row_changes(
    old: Sequence[DatasetFolder], new: Sequence[DatasetFolder]
) -> dict[tuple[str, str], tuple[int | None, int | None]]:
    a, b = _row_counts(old), _row_counts(new)
    return {place: (a.get(place), b.get(place)) for place in {**a, **b} if a.get(place) != b.get(place)}


def _row_counts(folders: Sequence[DatasetFolder]) -> dict[tuple[str, str], int]:
    import pyarrow.parquet as pq

    counts: dict[tuple[str, str], int] = {}
    for number, folder in enumerate(folders):
        for table in tables_of(folder):
            if table.config == PREVIEW:
                continue  # previews are made from the rows
            is_closed = folder.info.splits.get(table.split, {}).get("references") == "private"
            if table.config == MANIFEST and (number > 0 or not is_closed):
                continue  # the manifest has as many rows as the main config of the split
            place = (table.config, table.split)
            counts[place] = counts.get(place, 0) + pq.read_metadata(table.path).num_rows
    return counts


def _rows_text(before: int | None, after: int | None) -> str:
    if before is None:
        return f"new, {count_text(after or 0, 'row')}"
    if after is None:
        return f"removed, had {count_text(before, 'row')}"
    return f"{before:,} -> {count_text(after, 'row')}"


def _column_text(name: str, before: str | None, after: str | None) -> str:
    if before is None:
        return f"new column {name}"
    return f"column {name} was removed" if after is None else f"column {name} has another type"


def _redrawn_text(drawing: Redrawn) -> str:
    text = f"{drawing.key}: {drawing.finding}, {drawing.reader} {drawing.change}"
    return text if drawing.iou is None else f"{text}, IoU {drawing.iou:.3f}"


def _section(title: str, entries: Sequence[str]) -> list[str]:
    return ["", f"{title} ({len(entries)}):", *_some(entries)] if entries else []


def _some(entries: Sequence[str]) -> list[str]:
    lines = [f"  {entry}" for entry in entries[:SHOWN]]
    return lines + ([f"  ... and {len(entries) - SHOWN} more"] if len(entries) > SHOWN else [])
