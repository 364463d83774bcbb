"""Checks a dataset folder: files, manifest against references, masks, pictures, holdout, and loading it offline.

:func:`validate_folder` returns what it finds as :class:`reveal_bench.builders.source.Problem` and stops at nothing
that lets it go on; an empty list means that the folder is fit to publish.
"""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from reveal_bench.builders.leaks import find_leaks
from reveal_bench.builders.pictures import ORIGINAL
from reveal_bench.builders.shards import read_rows
from reveal_bench.builders.source import Problem
from reveal_bench.builders.writer import CHECKSUMS, file_sha256
from reveal_bench.masks import Rle, parse_masks
from reveal_bench.records import (
    FolderInfo,
    LocalizationRecord,
    Manifest,
    read_folder_info,
    read_localization,
    read_manifest,
)

__all__ = ["validate_folder"]

CACHES = {".git", ".cache", "__pycache__"}
"""Folders that tools make and that are no part of the dataset."""


def validate_folder(folder: Path, *, holdout: Path | None = None, load: bool = True) -> list[Problem]:
    """Everything that is wrong with a dataset folder.

    Parameters
    ----------
    folder : public or private dataset folder
    holdout : private folder of its holdout; then the two are compared, and nothing of the one may be in the other
    load : also load every config and split with `datasets`, offline

    Returns
    -------
    list of Problem: file, row, field, rule, value; empty if nothing is wrong

    Raises
    ------
    ValueError
        If `folder` or `holdout` is not a dataset folder.
    """
    folder = Path(folder)
    info = read_folder_info(folder)
    problems = list(_checksum_problems(folder))
    patients: dict[str, str] = {}
    images: dict[str, str] = {}
    for split, entry in info.splits.items():
        problems += _split_problems(folder, info, split, images, patients)
        if entry.get("references") not in ("public", "private"):
            problems.append(_in_info(split, "references", "must be 'public' or 'private'", entry.get("references")))
    problems += _stray_problems(folder, info)
    problems += _picture_problems(folder)
    if holdout is not None:
        problems += find_leaks(folder, Path(holdout))
    if load:
        problems += _load_problems(folder)
    return problems


def _in_info(split: str, field: str, rule: str, value: object) -> Problem:
    return Problem("manifest/benchmark.json", split, field, rule, repr(value))


def _checksum_problems(folder: Path) -> Iterator[Problem]:
    try:
        listed = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield Problem(CHECKSUMS, None, "file", "must list the sha256 of every file", type(error).__name__)
        return
    present = {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file() and not CACHES & set(path.relative_to(folder).parts)
    }
    present.pop(CHECKSUMS, None)
    for name in sorted(present.keys() | listed.keys()):
        if name not in present:
            yield Problem(CHECKSUMS, name, "files", "must be in the folder", "no such file")
        elif name not in listed:
            yield Problem(CHECKSUMS, name, "files", "must list every file of the folder", "not listed")
        elif (actual := file_sha256(present[name])) != listed[name]:
            yield Problem(name, None, "sha256", f"must be {listed[name]}", actual)


def _split_problems(
    folder: Path, info: FolderInfo, split: str, images: dict[str, str], patients: dict[str, str]
) -> Iterator[Problem]:
    """Problems of one split; `images` and `patients` map those of earlier splits to their split."""
    file = f"manifest/{split}.parquet"
    try:
        manifest = read_manifest(folder, split)
    except (OSError, ValueError, TypeError) as error:
        yield Problem(file, None, "file", "must be a manifest", str(error))
        return
    yield from _manifest_problems(manifest, file, _n_rows(folder / file), images)
    entry = info.splits[split]
    sizes = {"n_images": len(manifest.rows), "n_asked": len(manifest.asked_pairs())}
    if _references(folder, split):
        try:
            records = read_localization(folder, split)
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            yield Problem(f"localization/{split}", None, "file", "must hold localization rows", repr(error))
            return
        sizes["n_patients"] = len({record.patient_id for record in records})
        yield from _reference_problems(records, manifest, info, f"localization/{split}")
        for patient in sorted({record.patient_id for record in records}):
            before = patients.setdefault(patient, split)
            if before != split:
                yield Problem(f"localization/{split}", patient, "patient_id", "must be in one split", repr(before))
    elif entry.get("references") == "public":
        yield _in_info(split, "references", "must have files in localization/", "none")
    for name, actual in sizes.items():
        if entry.get(name) != actual:
            yield _in_info(split, name, f"must be {actual}, as in the files", entry.get(name))


def _n_rows(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)


def _references(folder: Path, split: str) -> list[Path]:
    return sorted((folder / "localization").glob(f"{split}-*.parquet"))


def _manifest_problems(manifest: Manifest, file: str, n_rows: int, images: dict[str, str]) -> Iterator[Problem]:
    if n_rows != len(manifest.rows):
        yield Problem(file, None, "image_id", "must be unique", f"{n_rows - len(manifest.rows)} repeated")
    for row in manifest.rows.values():
        before = images.setdefault(row.image_id, manifest.split)
        if before != manifest.split:
            yield Problem(file, row.image_id, "image_id", "must be in one split", repr(before))
        if row.width < 1 or row.height < 1:
            yield Problem(file, row.image_id, "size", "must be at least 1 x 1", f"{row.width} x {row.height}")
        unknown = set(row.asked) - set(manifest.findings)
        if unknown:
            yield Problem(file, row.image_id, "asked", "must be findings of the benchmark", ", ".join(sorted(unknown)))


def _reference_problems(
    records: Sequence[LocalizationRecord], manifest: Manifest, info: FolderInfo, file: str
) -> Iterator[Problem]:
    seen = set()
    for record in records:
        if record.image_id in seen:
            yield Problem(file, record.image_id, "image_id", "must be unique", "it again")
        seen.add(record.image_id)
        row = manifest.rows.get(record.image_id)
        if row is None:
            yield Problem(file, record.image_id, "image_id", "must be in the manifest", "not there")
            continue
        asked = tuple(record.asked(info.asks))
        pairs = {
            "study_id": (row.study_id, record.study_id),
            "view": (row.view, record.view),
            "size": (row.size, record.size),
            "asked": (row.asked, asked),
        }
        for name, (in_manifest, in_record) in pairs.items():
            if in_manifest != in_record:
                rule = f"must be {in_record}, as in the references"
                yield Problem(f"manifest/{manifest.split}.parquet", record.image_id, name, rule, str(in_manifest))
        yield from _record_problems(record, file)
    for image_id in manifest.rows:
        if image_id not in seen:
            yield Problem(file, image_id, "image_id", "must have a row for every image of the manifest", "none")
    yield from _mask_problems(records, file)


def _record_problems(record: LocalizationRecord, file: str) -> Iterator[Problem]:
    drawn = [(annotation.finding, annotation.reader) for annotation in record.annotations]
    for finding, reader in sorted(set(drawn)):
        if drawn.count((finding, reader)) > 1:
            rule = "must be one per finding and reader"
            yield Problem(file, record.image_id, "annotations", rule, f"{finding}, {reader} again")
    for point in record.points:
        if not (0 <= point.x < record.width and 0 <= point.y < record.height):
            yield Problem(file, record.image_id, "points", "must lie in the image", f"({point.x}, {point.y})")
    for finding in record.missing:
        reference = record.reference(finding)
        if reference is not None and reference.area_px > 0:
            yield Problem(file, record.image_id, "missing", "must have no ground-truth mask", finding)


def _mask_problems(records: Sequence[LocalizationRecord], file: str) -> Iterator[Problem]:
    """Masks must be well-formed, of the picture's size, and agree with their area and box."""
    drawn = [(record, a) for record in records for a in record.annotations if a.rle is not None]
    masks, broken = parse_masks([annotation.rle for _, annotation in drawn if annotation.rle is not None])
    areas, boxes = masks.areas, masks.boxes_xywh()
    for i, (record, annotation) in enumerate(drawn):
        name = f"annotations[{annotation.finding}, {annotation.reader}]"
        rle = annotation.rle or Rle((0, 0), "")
        if i in broken:
            yield Problem(file, record.image_id, f"{name}.rle", "must be a well-formed mask", str(broken[i]))
            continue
        if rle.size != record.size:
            yield Problem(file, record.image_id, f"{name}.rle.size", f"must be {record.size}", str(rle.size))
        if annotation.area_px != areas[i]:
            yield Problem(file, record.image_id, f"{name}.area_px", f"must be {areas[i]}", str(annotation.area_px))
        box = None if areas[i] == 0 else tuple(float(value) for value in boxes[i])
        if annotation.bbox_xywh != box:
            yield Problem(file, record.image_id, f"{name}.bbox_xywh", f"must be {box}", str(annotation.bbox_xywh))


def _stray_problems(folder: Path, info: FolderInfo) -> Iterator[Problem]:
    """References of a split that is private here, or unknown, must not lie in a public folder."""
    is_public = any(entry.get("references") == "public" for entry in info.splits.values())
    for path in sorted((folder / "localization").glob("*.parquet")):
        split = path.name.split("-")[0]
        private = is_public and info.splits.get(split, {}).get("references") == "private"
        if split not in info.splits or private:
            rule = "must belong to a split with public references"
            yield Problem(path.relative_to(folder).as_posix(), None, "split", rule, repr(split))
    inputs = sorted((folder / "holdout_inputs").glob("*.parquet"))
    for row in read_rows(inputs):
        given = [name for name in ("labels", "annotations", "points", "missing", "source_sha256") if row[name]]
        if any(value is not None for value in (row["label_status"] or {}).values()):
            given.append("label_status")
        for name in given:
            yield Problem("holdout_inputs", row["image_id"], name, "must be empty in a holdout's inputs", "a value")


def _picture_problems(folder: Path) -> Iterator[Problem]:
    from PIL import Image, UnidentifiedImageError

    for place in ("localization", "holdout_inputs"):
        for row in read_rows(sorted((folder / place).glob("*.parquet"))):
            if row["image"] is None:
                if row["pixel_pipeline"] != "withheld":
                    rule = "must be 'withheld' where there is no image"
                    yield Problem(place, row["image_id"], "pixel_pipeline", rule, repr(row["pixel_pipeline"]))
                continue
            data = row["image"]["bytes"]
            path = row["image"]["path"] or ""
            if "/" in path or "\\" in path:
                yield Problem(place, row["image_id"], "image.path", "must be a bare file name", repr(path))
            try:
                with Image.open(io.BytesIO(data)) as image:
                    size = (image.width, image.height)
            except (OSError, UnidentifiedImageError):
                yield Problem(place, row["image_id"], "image", "must be a picture", f"{len(data)} bytes")
                continue
            if size != (row["width"], row["height"]):
                rule = f"must be {row['width']} x {row['height']}"
                yield Problem(place, row["image_id"], "image size", rule, f"{size[0]} x {size[1]}")
            stated = row["source_sha256"] if row["pixel_pipeline"] == ORIGINAL else None
            if stated is not None and hashlib.sha256(data).hexdigest() != stated:
                yield Problem(place, row["image_id"], "source_sha256", "must be that of the image bytes", stated)


def _load_problems(folder: Path) -> Iterator[Problem]:
    """Load every config and split as a stranger would; the folder's own files are all it needs."""
    import datasets

    was_quiet = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with tempfile.TemporaryDirectory() as cache:
            for config, splits in _card_splits(folder).items():
                for split, n_rows in splits.items():
                    try:
                        loaded = datasets.load_dataset(str(folder), config, split=split, cache_dir=cache)
                    except Exception as error:  # whatever `datasets` raises on a stranger's machine is the finding
                        reason = f"{type(error).__name__}: {error}"
                        yield Problem("README.md", config, split, "must load with load_dataset", reason)
                        continue
                    if len(loaded) != n_rows:
                        yield Problem("README.md", config, split, f"must load {n_rows} rows", str(len(loaded)))
    finally:
        if not was_quiet:
            datasets.enable_progress_bars()


def _card_splits(folder: Path) -> dict[str, dict[str, int]]:
    """Configs and splits that the card promises, with the rows that `dataset_info` states."""
    import yaml

    block = yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    infos = block["dataset_info"]
    return {
        info["config_name"]: {split["name"]: split["num_examples"] for split in info["splits"]}
        for info in (infos if isinstance(infos, list) else [infos])
    }
