"""Rows of predictions whose ids a caller states separately: arrays, tables and detectors' outputs of a batch.

An array has its columns in the order that the caller states. A table is read by its names: ids that the caller states
only replace an index that numbers the rows, as pandas makes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reveal_bench.api.bench import Bench
from reveal_bench.api.inputs import IdTexts, frame_of, is_given
from reveal_bench.arguments import ArgumentError
from reveal_bench.findings import canonical_finding
from reveal_bench.predictions.number_ids import plain_value

if TYPE_CHECKING:
    import pandas as pd

_DETECTOR_FIELDS = ("boxes", "labels", "scores")
_MASKS = "; masks are a list of {'image_id': ..., 'finding': ..., 'mask': array} without `labels` and `ids`"
_MASK_THRESHOLD = 0.5  # as torchvision's documentation suggests for Mask R-CNN


def numbered_categories(categories: Sequence[str] | Mapping[int, str], first_category: int) -> dict[int, str]:
    """Return number -> name of categories.

    Raises
    ------
    ArgumentError
        If a list starts with the background, whose number is 0, but its first number is 1.
    """
    if isinstance(categories, Mapping):
        return {int(number): name for number, name in categories.items()}
    if first_category and categories and str(categories[0]).strip("_ ").casefold() == "background":
        rule = "must not start with the background, which has the number 0, unless `first_category` is 0"
        raise ArgumentError("categories", rule, repr(categories[0]), ("first_category",))
    return dict(enumerate(categories, start=first_category))


def is_detector_output(source: Any) -> bool:
    """Return True for a torchvision detector's output: a dictionary with boxes, labels and scores for each image."""
    outputs = list(source.values()) if isinstance(source, Mapping) else source
    return (
        isinstance(outputs, list | tuple)
        and bool(outputs)
        and all(isinstance(one, Mapping) and set(_DETECTOR_FIELDS) <= set(one) for one in outputs)
    )


def detector_rows(source: Any, ids: Sequence[Any] | None, bench: Bench) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return (a row for each box of a torchvision detector, notes); boxes have two corners.

    If a benchmark has one mask per finding, the masks of Mask R-CNN replace the boxes.

    Parameters
    ----------
    source : see :func:`is_detector_output`
    ids : ids of the images, unless `source` is a mapping of ids, or each output has its own under the name of ids
    """
    if isinstance(source, Mapping):
        if ids is not None:
            raise ArgumentError("ids", "must be omitted for a mapping of ids to outputs", f"{len(ids)} ids")
        ids, source = list(source), list(source.values())
    if ids is None and all(bench.kind.key in output for output in source):
        ids = [output[bench.kind.key] for output in source]
    if ids is None or len(ids) != len(source):
        raise ArgumentError("ids", f"must be the ids of {len(source)} images", None if ids is None else len(ids))
    texts = IdTexts(bench, "ids")
    takes_masks = not bench.kind.questions.has_several_places
    rows = []
    for one, output in zip(ids, source, strict=True):
        key, parts = texts.text(one), [_listed(output[name]) for name in _DETECTOR_FIELDS]
        masks: Sequence[Any] = _masks(output["masks"]) if "masks" in output else [None] * len(parts[0])
        for box, label, score, mask in zip(*parts, masks, strict=True):
            row = {bench.kind.key: key, "category_id": label, "score": score}
            if mask is None or not takes_masks:
                rows.append({**row, "bbox": box} | ({} if mask is None else {"masks": None}))
            else:
                rows.append(
                    bench.kind.predictions.entry(
                        {**row, "mask": (mask[0] if mask.ndim == 3 else mask) >= _MASK_THRESHOLD}
                    )
                )
    has_masks = takes_masks and any("masks" in output for output in source)
    return rows, (f"masks have the pixels of at least {_MASK_THRESHOLD}",) if has_masks else ()


def _masks(values: Any) -> Any:
    """Return bool masks (n, height, width) from probabilities of shape (n, 1, height, width)."""
    array = array_of(values)
    return (array[:, 0] if array.ndim == 4 else array) >= _MASK_THRESHOLD


def _listed(values: Any) -> list[Any]:
    return list(values.tolist() if hasattr(values, "tolist") else values)


def is_table(source: Any) -> bool:
    """Return True for a DataFrame, a Series or an Arrow table, which have names of columns."""
    return any(hasattr(source, name) for name in ("to_pandas", "to_parquet", "to_frame"))


def named_table(
    source: Any, bench: Bench, argument: str, *, labels: Sequence[str] | None = None, ids: Sequence[Any] | None = None
) -> pd.DataFrame:
    """Return a table with its ids in the column of ids, and with a name for each column.

    Parameters
    ----------
    source : a DataFrame, a Series, an Arrow table, or a mapping of column names to columns
    argument : name of `source` in messages
    labels : names of the columns; the table's own, unless they are numbers from 0
    ids : ids of the rows; the table's own, if a column or its index has them

    Raises
    ------
    ArgumentError
        If `labels` or `ids` differ in number from the table's columns or rows, or contradict its own.
    """
    import pandas as pd

    frame = _pandas(source, argument)
    if labels is not None and isinstance(frame.columns, pd.RangeIndex):
        if len(labels) != len(frame.columns):
            raise ArgumentError("labels", f"must name {len(frame.columns)} columns", len(labels))
        frame = frame.set_axis(list(labels), axis="columns")
    key = bench.kind.key
    own_labels = [str(name) for name in frame.columns if name != key]
    if labels is not None and list(labels) != own_labels:
        rule = f"must be omitted, or equal the table's columns ({', '.join(own_labels)})"
        raise ArgumentError("labels", rule, ", ".join(map(str, labels)))
    if ids is None:
        return frame_of(frame, argument)
    if len(ids) != len(frame):
        raise ArgumentError("ids", f"must be the ids of {len(frame)} rows", len(ids))
    texts = IdTexts(bench, "ids")
    stated = [texts.text(plain_value(one)) for one in ids]
    _check_own_ids(frame, stated, texts)
    return frame_of(frame.reset_index(drop=True), argument).assign(**{key: stated})


def _pandas(source: Any, argument: str) -> pd.DataFrame:
    import pandas as pd

    if isinstance(source, Mapping):
        columns = {name: array_of(column) for name, column in source.items()}
        if any(column.ndim != 1 for column in columns.values()) or len({len(one) for one in columns.values()}) > 1:
            rule = "must map findings to columns of equal length if `ids` are given, or ids to answers if not"
            raise ArgumentError(argument, rule, ", ".join(map(str, list(source)[:5])), ("ids",))
        return pd.DataFrame(columns)
    if isinstance(source, pd.Series):
        return source.to_frame()
    return source if isinstance(source, pd.DataFrame) else frame_of(source, argument)


def _check_own_ids(frame: pd.DataFrame, stated: Sequence[Any], texts: IdTexts) -> None:
    """Raise an ArgumentError if a table has other ids than a caller states."""
    import pandas as pd

    is_column = texts.key in frame
    own: Iterable[Any] = frame[texts.key] if is_column else frame.index
    if not is_column and isinstance(frame.index, pd.RangeIndex) and not all(map(texts.has, own)):
        return
    for number, (one, theirs) in enumerate(zip(own, stated, strict=True), start=1):
        if (texts.text(one) if texts.has(one) else one) != theirs:
            place = f"the column `{texts.key}`" if is_column else "the index"
            rule = f"must be omitted, or equal {place} of the table, which has {one!r} in row {number}"
            rule += "" if is_column or texts.has(one) else ". For an index without ids: df.reset_index(drop=True)"
            raise ArgumentError("ids", rule, repr(theirs))


def array_rows(source: Any, labels: Sequence[str], ids: Sequence[Any] | None) -> list[dict[str, Any]]:
    """Return a row for each row of an array, with its id as "id" and without columns whose label is empty."""
    if ids is None:
        raise ArgumentError("ids", "must be given with `labels`: the id of every row of the array", None, ("labels",))
    try:
        array = np.asarray(source)
    except ValueError:
        raise ArgumentError(
            "source", f"must have a number for each label in each row{_MASKS}", "other shapes"
        ) from None
    check_shape(array, "source", len(labels), ids)
    columns = [name for name in labels if name]  # torchxrayvision names untrained outputs ""
    places = [i for i, name in enumerate(labels) if name]
    return [
        {"id": one, **dict(zip(columns, values[places].tolist(), strict=True))}
        for one, values in zip(ids, array, strict=True)
    ]


def check_shape(array: np.ndarray, argument: str, n_labels: int, ids: Sequence[Any]) -> None:
    """Raise an ArgumentError unless an array has a row for each id and a column for each label."""
    if array.shape != (len(ids), n_labels):
        rule = f"must have a row for each of {len(ids)} ids and a column for each of {n_labels} labels"
        raise ArgumentError(argument, rule + (_MASKS if array.ndim > 2 else ""), f"shape {array.shape}")


def check_cells(frame: pd.DataFrame, bench: Bench, argument: str) -> None:
    """Check that a table has only a column of ids and columns of findings, and a number in each cell.

    Raises
    ------
    ArgumentError
        If a column is neither, or a cell is empty or NaN; the message names its row, id and column.
    """
    key = bench.kind.key
    findings = [name for name in frame.columns if name != key]
    unknown = [name for name in findings if canonical_finding(name, bench.info.findings) is None]
    if unknown:
        raise ArgumentError(argument, f"must have only the column `{key}` and columns of findings", unknown[0])
    for name in findings:
        for number, cell in enumerate(frame[name], start=1):
            if not is_given(cell):
                rule = "must have a number in each cell. Leave out the row and set allow_missing=True, or score fewer"
                rule += " findings: bench.select(findings=...)"
                raise ArgumentError(argument, rule, f"{cell} in row {number} ({frame[key].iloc[number - 1]}), {name!r}")


def array_of(values: Any) -> Any:
    """Return the array of a tensor; numpy has no bfloat16, whose values a float has without loss."""
    tensor = values.detach().cpu() if hasattr(values, "detach") else values
    try:
        return np.asarray(tensor)
    except TypeError:
        if not hasattr(tensor, "float"):
            raise
        return np.asarray(tensor.float())
