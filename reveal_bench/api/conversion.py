"""Implement ``rb.convert``, which makes predictions from output of models, scripts and annotation tools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from reveal_bench.api.batches import (
    array_rows,
    detector_rows,
    is_detector_output,
    is_table,
    named_table,
    numbered_categories,
)
from reveal_bench.api.bench import AnyBench, Bench, as_whole_bench
from reveal_bench.api.inputs import frame_of, is_given
from reveal_bench.api.result_table import TableResult
from reveal_bench.arguments import ArgumentError
from reveal_bench.evaluation.score import ids_of_other_splits
from reveal_bench.exchange import FORMS
from reveal_bench.exchange.outputs import KNOWN_COLUMNS, Reading, coco_names, coco_sizes, read_outputs
from reveal_bench.exchange.row_places import BoxForm
from reveal_bench.files import parse_json, write_whole
from reveal_bench.findings import LabelPolicy
from reveal_bench.tables import open_table
from reveal_bench.words import count_text

_OF_RESPONSE = ("predictions", "image", "time", "inference_id")
"""Fields of a response of Roboflow that do not describe a box; each prediction may name its image."""
_OF_BOX = {"detection_id", "prediction_type"}
"""Fields that only Roboflow's boxes have."""
_CENTRE = {"x": "x_center", "y": "y_center"}
_TOOLS = {"region_shape_attributes": "VIA", "_via_img_metadata": "VIA", "regions": "VIA", "shapes": "LabelMe"}
"""Fields in the files of annotation tools whose shapes are not read -> name of the tool."""


@dataclass(frozen=True, repr=False)
class Conversion(TableResult):
    """Converted predictions, for functions such as :func:`reveal_bench.score`, with notes on the conversion.

    Attributes
    ----------
    lines : lines of a prediction file
    notes : sentences on the meaning given to columns, and on omitted rows
    bench : the split that the predictions answer
    """

    lines: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]
    bench: Bench

    @property
    def predictions(self) -> list[dict[str, Any]]:
        """The lines, under the attribute name that functions such as :func:`reveal_bench.score` read."""
        return list(self.lines)

    @property
    def records(self) -> Sequence[Mapping[str, Any]]:
        """The lines."""
        return self.lines

    @property
    def caption(self) -> str:
        """Number of predictions and the split, then the notes."""
        return "\n".join(
            [f"{count_text(len(self.lines), 'prediction')} for {self.bench}", *(f"  {note}" for note in self.notes)]
        )

    def printed_rows(self) -> list[dict[str, str]]:
        """Return the first three lines, with long values shortened."""
        names = list(dict.fromkeys(name for line in self.lines[:3] for name in line))
        return [{name: json.dumps(line.get(name))[:40] for name in names} for line in self.lines[:3]]

    def write(self, path: str | Path) -> Path:
        """Write the prediction file (JSONL)."""
        write_whole(Path(path), "".join(f"{json.dumps(line)}\n" for line in self.lines).encode())
        return Path(path)


def convert(
    source: Any,
    bench: AnyBench,
    *,
    split: str | None = None,
    form: str = "table",
    reader: str | None = None,
    instances: str | Path | Mapping[str, Any] | None = None,
    categories: Sequence[str] | Mapping[int, str] | None = None,
    first_category: Literal[0, 1] = 1,
    columns: Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    boxes: BoxForm = "xywh",
    normalised: bool = False,
    leave_out_unknown: bool = False,
    blank: Literal["missing", "negative"] | None = None,
    uncertain: Literal["missing", "positive", "negative"] | None = None,
) -> Conversion:
    """Make predictions from the output of a model, a script or an annotation tool.

    Parameters
    ----------
    source : for the form "table", a table with a row per finding (``image_id, finding, xmin, ymin, xmax, ymax`` or
        ``study, label, probability``) or a column per finding; COCO results; or an array (n, n_labels) of probabilities
        with `labels` and `ids`. A path (CSV, TSV, XLSX, Parquet, JSON, JSONL), a DataFrame or a list of mappings. For
        other values of `form`, the file or folder
    bench, split : as in :func:`reveal_bench.score`
    form : "table", or a format in :data:`reveal_bench.exchange.FORMS`; these ignore all options below except `reader`
    reader : the reader whose answers are converted if a file has several; in a table, named by its column "reader"
    instances : COCO dataset file, or its content, that names the images and categories of COCO results by number
    categories : names of categories by number: a mapping, or a list whose numbers start at `first_category`
    columns : column in the table -> its meaning: "finding", "probability", "score", "reader", the id column of the
        benchmark, a finding ...
    labels, ids : names of an array's columns and rows, such as ``model.pathologies`` of torchxrayvision. A table has
        its own: `labels` must then equal its column names, and `ids` its column or index of ids, if it has them
    boxes : meaning of the four numbers of a box: "xywh" as in COCO, "xyxy" or "cxcywh"; only needed unless columns are
        named, such as xmin and xmax
    normalised : True if coordinates are fractions of the image's sides
    leave_out_unknown : omit and count rows of images or studies that are not in the split
    blank, uncertain : meaning of blank cells, and of -1 in a table whose values are only 0, 1 and -1, in columns of
        findings; "missing" leaves out the study, and counts it. Needed if there are such cells

    Raises
    ------
    ArgumentError
        If ids or findings are not in the split (the message lists all), or an argument breaks its rule.
    TableError
        If a file is not a table; the message names the line.
    """
    opened = as_whole_bench(bench, split)
    if form != "table":
        return _drawn(source, opened, form, reader)
    notes: tuple[str, ...] = ()
    if labels is not None and is_detector_output(source):
        example = dict(enumerate(labels[:2], 1))
        rule = f"must be omitted for a detector: name its classes with `categories`, such as {example}"
        raise ArgumentError("labels", rule, ", ".join(map(str, labels)), ("categories",))
    if is_table(source) and (ids is not None or labels is not None):
        source, labels, ids = named_table(source, opened, "source", labels=labels, ids=ids), None, None
    if labels is None and is_detector_output(source):
        (source, notes), boxes = detector_rows(source, ids, opened), "xyxy"
    named, images, sizes = _names(instances, categories, first_category)
    policy = LabelPolicy(blank, uncertain)
    if labels is None:
        all_rows = rows_of(source, [*KNOWN_COLUMNS, *(columns or {})], keep_blank=True)
        rows, columns = _of_reader(all_rows, dict(columns or {}), reader)
        reading = Reading(columns, boxes, normalised, named, images, sizes, leave_out_unknown, policy)
    else:
        if reader is not None:
            raise ArgumentError("reader", "must be omitted, because an array has no readers", repr(reader))
        rows = array_rows(source, labels, ids)
        columns = {"id": opened.kind.key, **(columns or {})}
        reading = Reading(columns, leave_out_unknown=leave_out_unknown, policy=policy)
    elsewhere = partial(ids_of_other_splits, opened.folder, opened.split)
    outputs = read_outputs(rows, opened.kind, opened.manifest, opened.info.findings, reading, elsewhere)
    return Conversion(outputs.lines, (*notes, *outputs.notes), opened)


def _of_reader(
    rows: list[dict[str, Any]], columns: dict[str, str], reader: str | None
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return (rows of one reader, columns without the one that names readers)."""
    named = [theirs for theirs, ours in columns.items() if ours == "reader"]
    column = named[0] if named else "reader"
    readers = sorted({str(row[column]) for row in rows if row.get(column) is not None})
    if reader is None and len(readers) < 2:
        return rows, columns
    if not readers:
        rule = "must be omitted unless the table has a column `reader`, or `columns` names one: THEIRS=reader"
        raise ArgumentError("reader", rule, repr(reader), ("columns",))
    if reader not in readers:
        raise ArgumentError("reader", f"must be one of the table's readers: {', '.join(readers)}", reader or "none")
    kept = [row for row in rows if str(row.get(column)) == reader]
    ours = {theirs: stands_for for theirs, stands_for in columns.items() if stands_for != "reader"}
    return [{name: value for name, value in row.items() if name != column} for row in kept], ours


def _drawn(source: Any, bench: Bench, form: str, reader: str | None) -> Conversion:
    from reveal_bench.exchange.transfer import read_form

    if form not in FORMS:
        raise ArgumentError("form", f"must be one of table, {', '.join(FORMS)}", repr(form))
    done, predictions = read_form(form, Path(source), bench.folder, bench.split, reader=reader)
    lines = tuple(json.loads(line) for line in bench.kind.predictions.to_jsonl(predictions).splitlines())
    return Conversion(lines, (*done.notes, *(f"not kept: {loss}" for loss in done.lost)), bench)


def _names(
    instances: str | Path | Mapping[str, Any] | None,
    categories: Sequence[str] | Mapping[int, str] | None,
    first_category: int,
) -> tuple[dict[int, str], dict[int, str], dict[int, tuple[Any, Any]]]:
    """Return (number -> name of the category, number -> name of the image, number -> size of the image)."""
    named: dict[int, str] = {}
    images: dict[int, str] = {}
    sizes: dict[int, tuple[Any, Any]] = {}
    if instances is not None:
        document = instances if isinstance(instances, Mapping) else _json(Path(instances).read_bytes(), "instances")
        if not isinstance(document, Mapping):
            raise ArgumentError("instances", "must be a COCO dataset", f"a {type(document).__name__}")
        (named, images), sizes = coco_names(document), coco_sizes(document)
    if categories is not None:
        named = numbered_categories(categories, first_category)
    return named, images, sizes


def rows_of(source: Any, known: Collection[str] = (), *, keep_blank: bool = False) -> list[dict[str, Any]]:
    """Return the rows of a table of any type as mappings without empty cells.

    Parameters
    ----------
    known : column names that are also recognised in capitals or with surrounding spaces
    keep_blank : return empty cells of files and DataFrames as None instead of omitting them

    Raises
    ------
    ArgumentError
        If the source is not a table, or two of its columns are the same known column.
    """
    rows = [box for row in _rows(source) for box in _boxes_of_roboflow(row)]
    spelling = {name.casefold(): name for name in known}
    names = {
        name: spelling.get(name.strip().casefold(), name) for name in dict.fromkeys(n for row in rows for n in row)
    }
    _refuse_tools(list(names))
    repeated = [name for name, n in Counter(names.values()).items() if n > 1]
    if repeated:
        same = " and ".join(theirs for theirs, ours in names.items() if ours == repeated[0])
        raise ArgumentError("source", f"must have the column `{repeated[0]}` once", same)
    return [{names[name]: value for name, value in row.items() if keep_blank or value is not None} for row in rows]


def _refuse_tools(names: Sequence[str]) -> None:
    """Raise ArgumentError if `names` are fields of an annotation tool's own file."""
    if tools := {_TOOLS[name] for name in names if name in _TOOLS}:
        rule = (
            f"must not be a file of {min(tools)}: write its shapes as COCO, for `--from coco`, or as a table of boxes"
        )
        raise ArgumentError("source", rule, ", ".join(names[:10]))


def _boxes_of_roboflow(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each box of a response of Roboflow, whose x and y are the box's centre, or `row` itself."""
    boxes = row.get("predictions")
    if isinstance(boxes, list) and boxes and all(isinstance(box, Mapping) for box in boxes):
        own = {name: value for name, value in row.items() if name not in _OF_RESPONSE}
        boxes = [{**own, **box} for box in boxes]
    elif row.keys() & _OF_BOX:
        boxes = [row]
    else:
        return [dict(row)]
    return [{_CENTRE.get(name, name): value for name, value in box.items()} for box in boxes]


def _rows(source: Any) -> list[dict[str, Any]]:
    if isinstance(source, str | Path):
        return _file_rows(Path(source))
    if hasattr(source, "to_pandas") or hasattr(source, "to_parquet"):
        frame = frame_of(source, "source")
        return [
            {str(name): value if is_given(value) else None for name, value in row.items()}
            for row in frame.to_dict("records")
        ]
    if isinstance(source, Mapping):
        return _mapping_rows(source)
    if isinstance(source, Sequence) and all(isinstance(row, Mapping) for row in source):
        return [dict(row) for row in source]
    rule = "must be a path, a DataFrame, a list of mappings, or an array with `labels` and `ids`"
    if isinstance(source, Bench):
        rule += "; the readers of a benchmark: rb.readings(predictions, bench)"
    raise ArgumentError("source", rule, f"a {type(source).__name__}", ("labels", "ids"))


def _mapping_rows(source: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a mapping: columns as lists, columns as in pandas' JSON, or a COCO dataset's annotations."""
    if "annotations" in source:
        return [dict(row) for row in source["annotations"]]
    if "predictions" in source:
        return [dict(source)]
    _refuse_tools([*source, *next((one for one in source.values() if isinstance(one, Mapping)), ())])
    columns = [list(column.values()) if isinstance(column, Mapping) else column for column in source.values()]
    if not all(isinstance(column, list | tuple) for column in columns) or len(set(map(len, columns))) != 1:
        rule = "must be columns of equal length, or a list of mappings, such as `to_json(orient='records')` writes"
        raise ArgumentError("source", rule, ", ".join(source))
    return [dict(zip(source, row, strict=True)) for row in zip(*columns, strict=True)]


def _file_rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if not path.is_file():
        raise ArgumentError("source", "must be a file", path)
    document = _json_document(path)
    if document is not None:
        is_row = any(not isinstance(value, list | Mapping) for value in document.values())
        return [dict(document)] if is_row else _mapping_rows(document)
    with open_table(path, objects=True) as reader:
        is_typed = reader.format in ("json", "jsonl", "parquet")
        rows = []
        for row in reader:
            cells = ((name, row.value(name) if is_typed else row[name]) for name in reader.columns)
            rows.append({name: None if value == "" else value for name, value in cells})
        return rows


def _json_document(path: Path) -> Mapping[str, Any] | None:
    """Return the JSON object in a file; None if the file is another kind of table."""
    with path.open("rb") as file:
        if file.read(1 << 12).lstrip()[:1] != b"{":
            return None
    try:
        document = _json(path.read_bytes(), "source")
    except ArgumentError:  # JSONL, with a row per line
        return None
    return document if isinstance(document, Mapping) else None


def _json(data: bytes, argument: str) -> Any:
    try:
        return parse_json(data.decode("utf-8"))
    except ValueError as error:
        raise ArgumentError(argument, f"must be JSON: {error}") from None
