"""Export a dataset folder's references, or predictions, to a form, and import a form as a prediction file."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import LintError
from reveal_bench.exchange import form_named
from reveal_bench.files import write_whole
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.cases import Annotations
from reveal_bench.kinds.folder import check_split, read_folder_info, read_rows, split_shards
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.parts import AnnotationExchange
from reveal_bench.kinds.pictures import StoredPictures
from reveal_bench.predictions.files import grid_of, prediction_file
from reveal_bench.predictions.limits import LintOptions

PNG = b"\x89PNG"


@dataclass(frozen=True)
class Converted:
    """Result of an export or import: counts, readers, and sentences about data that were lost or read otherwise."""

    n_images: int
    n_pictures: int
    n_drawings: int
    n_studies: int
    readers: tuple[str, ...]
    lost: tuple[str, ...]
    notes: tuple[str, ...]


def to_form(
    form: str,
    folder: Path,
    split: str,
    out: Path,
    *,
    predictions: Path | None = None,
    reader: str | None = None,
    with_pictures: bool = True,
) -> Converted:
    """Write the references of a split, or predictions for it, in a form of :data:`reveal_bench.exchange.FORMS`.

    Parameters
    ----------
    out : new or empty folder
    predictions : prediction file or run folder; by default the references are written
    reader : reader whose drawings or labels are written; by default those of all readers
    with_pictures : whether to write the dataset folder's pictures as well

    Raises
    ------
    LintError
        If the prediction file has errors.
    ArgumentError
        If the references are private, no reader is called `reader`, `out` is not empty, or the form cannot store
        annotations of this kind of benchmark.
    """
    module, kind, out = form_named(form), _kind(folder, split), Path(out).resolve()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ArgumentError("out", "must be a new or empty folder", out)
    annotations, records = _annotations(kind, folder, split, predictions)
    annotations = annotations if reader is None else _of_reader(annotations, reader)
    new = out.with_name(f".{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)  # left by an interrupted attempt
    try:
        new.mkdir(parents=True)
        names = {image_id: f"{stem}.png" for image_id, stem in annotations.stems.items()}
        pictures = _pictures(kind, folder, split, records) if with_pictures else ()
        written = _write_pictures(pictures, annotations, new / module.IMAGES)
        lost = module.write(annotations, new, names | written)
        if out.exists():
            out.rmdir()
        new.rename(out)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return _converted(annotations, len(written), lost)


def _write_pictures(pictures: Iterable[tuple[str, bytes]], annotations: Annotations, folder: Path) -> dict[str, str]:
    """Write pictures into a folder; return image id -> name of the picture's file."""
    names = {}
    for image_id, data in pictures:
        names[image_id] = f"{annotations.stems[image_id]}.{'png' if data.startswith(PNG) else 'jpg'}"
        folder.mkdir(exist_ok=True)
        write_whole(folder / names[image_id], data)
    return names


def from_form(form: str, path: Path, folder: Path, split: str, out: Path, *, reader: str | None = None) -> Converted:
    """Read a file or folder of a form with :func:`read_form`, and write a prediction file."""
    done, predictions = read_form(form, path, folder, split, reader=reader)
    write_whole(Path(out), _kind(folder, split).predictions.to_jsonl(predictions))
    return done


def read_form(
    form: str, path: Path, folder: Path, split: str, *, reader: str | None = None
) -> tuple[Converted, list[Any]]:
    """Read the drawings and labels of one reader or model from a file or folder of a form, as predictions.

    Parameters
    ----------
    reader : reader or model to read; needed only if there are several

    Raises
    ------
    ArgumentError
        If the file does not fit the form or the split, has no drawing and no label, or there are several readers and
        none is named.
    """
    kind = _kind(folder, split)
    exchange, manifest = _exchange(kind), kind.questions.read_manifest(folder, split)
    known = exchange.drawn_predictions((), _bare_records(kind, folder, split), manifest)
    try:
        annotations = form_named(form).read(Path(path), known)
    except ArgumentError as error:  # forms say `file`; callers and the command have it as `source`
        name = "source" if error.argument == "file" else error.argument
        raise ArgumentError(name, error.rule, error.value, error.others) from None
    if not annotations.readers:
        rule = "must have drawings or labels"
        raise ArgumentError("source", rule, "; ".join(annotations.notes) or "none")
    if reader is None and len(annotations.readers) > 1:
        raise ArgumentError("reader", f"must be named, the file has {', '.join(annotations.readers)}")
    selected = annotations if reader is None else _of_reader(annotations, reader)
    predictions, lost = exchange.to_predictions(selected)
    return _converted(selected, 0, lost), predictions


def _of_reader(annotations: Annotations, reader: str) -> Annotations:
    by_own_id = [one for one in annotations.readers if one.partition(":")[2] == reader]  # "individual:R2" by "R2"
    if reader not in annotations.readers and len(by_own_id) == 1:
        [reader] = by_own_id
    if reader not in annotations.readers:
        raise ArgumentError("reader", f"must be one of the readers: {', '.join(annotations.readers) or 'none'}", reader)
    return replace(
        annotations,
        drawings=tuple(one for one in annotations.drawings if one.reader == reader),
        studies=tuple(one for one in annotations.studies if one.reader == reader),
    )


def _converted(annotations: Annotations, n_pictures: int, lost: list[str]) -> Converted:
    drawings, studies = len(annotations.drawings), len(annotations.studies)
    readers = tuple(annotations.readers)
    return Converted(len(annotations.films), n_pictures, drawings, studies, readers, tuple(lost), annotations.notes)


def _kind(folder: Path, split: str) -> AnyKind:
    info = read_folder_info(folder)
    check_split(info, folder, split)
    return KINDS[info.kind]


def _exchange(kind: AnyKind) -> AnnotationExchange[Any, Any, Any]:
    if kind.exchange is None:
        raise ArgumentError("folder", "must be a benchmark of localization or findings", f"one of {kind.name}")
    return kind.exchange


def _annotations(kind: AnyKind, folder: Path, split: str, predictions: Path | None) -> tuple[Annotations, list[Any]]:
    """Return the annotations, and the records whose pictures may be written."""
    info, manifest = read_folder_info(folder), kind.questions.read_manifest(folder, split)
    if predictions is None:
        if info.splits[split].get("references") != "public":
            raise ArgumentError("split", "must have public references, or `predictions` must be given", split)
        records = kind.data.read_records(folder, split)
        return _exchange(kind).drawn_references(records, manifest), records
    predictions = prediction_file(Path(predictions))
    options = LintOptions(grid_of(predictions), allow_missing=True)
    report = kind.predictions.lint(predictions, manifest, options)
    if not report.ok:
        raise LintError(report)
    records = _bare_records(kind, folder, split)
    return _exchange(kind).drawn_predictions(report.predictions, records, manifest), records


def _bare_records(kind: AnyKind, folder: Path, split: str) -> list[Any]:
    """Return records without references, from the manifest, or from public references if only these list the images."""
    info = read_folder_info(folder)
    if split_shards(folder, kind.config, split):
        records: list[Any] = kind.data.read_records(folder, split)
        return records
    entries = read_rows(Path(folder) / "manifest" / f"{split}.parquet")
    return [kind.data.bare_record(entry, info.findings) for entry in entries]


def _pictures(kind: AnyKind, folder: Path, split: str, records: list[Any]) -> Iterator[tuple[str, bytes]]:
    """Yield (image_id, file) of every picture in the folder, in the order that is fastest to read."""
    cases = {kind.data.key_of(record): kind.display.case(record) for record in records}
    films = {key: [film.image_id for film in case.films] for key, case in cases.items()}
    stored = StoredPictures(kind, split_shards(folder, kind.config, split), set(films))
    for key in stored.order:
        for image_id, data in zip(films[key], stored.of(key), strict=False):
            if data is not None:
                yield image_id, data
