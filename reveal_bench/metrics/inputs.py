"""Inputs of `evaluate` users, checked and converted to one format for the wrappers in `evaluate_modules`.

Conventions
-----------
``read_*`` functions accept the values of one batch, in any usual format (tuples, numpy arrays, bytes, None for absent
values), and return plain lists, strings and numbers that Arrow can store. The functions accept many formats, check the
content strictly, and drop or repair nothing. A wrapper inherits from :class:`CheckedInputs` before ``evaluate.Metric``,
so that inputs are checked before `evaluate` sees them, with the messages of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from reveal_bench.arguments import ArgumentError
from reveal_bench.masks import Rle, encode_mask, pack_masks


class Batch(NamedTuple):
    """Values of one batch as stored, and the index of their format in a module's `features`."""

    predictions: list[Any]
    references: list[Any]
    features: int


class CheckedInputs:
    """Reader and checker of the inputs of an `evaluate.Metric`; a wrapper defines ``read(predictions, references)``.

    `evaluate` alone would choose the first of a module's features that fits the first case. Here it is the feature for
    the format that :meth:`read` returned, and every batch must have the same format.
    """

    def read(self, predictions: list[Any], references: list[Any], features: int | None) -> Batch:
        """Return one batch as stored, in the format of `features` if that is given."""
        raise NotImplementedError

    def add(self, *, prediction: Any = None, reference: Any = None, **other: Any) -> None:
        """Add one prediction and its reference."""
        # `evaluate.combine` passes these names in the plural
        one, its = other.pop("predictions", prediction), other.pop("references", reference)
        self.add_batch(predictions=[one], references=[its], **other)

    def add_batch(self, *, predictions: Any = None, references: Any = None, **other: Any) -> None:
        """Add predictions and their references."""
        if other:
            raise ValueError(f"`{min(other)}` must be given to compute(), not with a batch")
        chosen, held = _paired(predictions, references)
        if not chosen:
            return
        batch = self.read(chosen, held, self._stored())
        self._features_read = batch.features
        super().add_batch(predictions=batch.predictions, references=batch.references)  # type: ignore[misc]

    def compute(self, *, predictions: Any = None, references: Any = None, **options: Any) -> Any:
        """Compute the metric over all predictions and references that were added."""
        n_cases = len(self)  # type: ignore[arg-type]
        is_given = predictions is not None or references is not None
        if is_given:
            n_cases += len(_paired(predictions, references)[0])
        if n_cases == 0:
            raise ValueError("`predictions` and `references` must hold at least one case, got none")
        for name in ("findings", "patients"):
            if options.get(name) is not None and len(options[name]) != n_cases:
                raise ValueError(
                    f"`{name}` must have the length of `predictions` ({n_cases}), got {len(options[name])}"
                )
        if options.get("all_patients") is not None:
            unlisted = sorted(set(options.get("patients") or ["(none given)"]) - set(options["all_patients"]))
            if unlisted:
                raise ArgumentError(
                    "all_patients", f"must hold every patient of `patients`, {unlisted[0]!r} is missing"
                )
        if is_given:  # set only now, so that refused values do not remain
            self.add_batch(predictions=predictions, references=references)
        return super().compute(**options)  # type: ignore[misc]

    def _stored(self) -> int | None:
        return self._features_read if len(self) else None  # type: ignore[arg-type]

    def _infer_feature_from_batch(self, batch: Any) -> Any:
        """Return the feature that :meth:`read` found, instead of the guess of `evaluate` from the first case."""
        every = self.features  # type: ignore[attr-defined]
        return every[self._features_read] if isinstance(every, list) else every


def _paired(predictions: Any, references: Any) -> tuple[list[Any], list[Any]]:
    for name, values in (("predictions", predictions), ("references", references)):
        if values is None or isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__"):
            raise ValueError(f"`{name}` must be a list with one entry per case, got {_short(values)}")
    if len(predictions) != len(references):
        wanted = f"the length of `references` ({len(references)})"
        raise ArgumentError("predictions", f"must have {wanted}", len(predictions))
    return list(predictions), list(references)


def read_masks(name: str, values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return masks as ``{"size": [height, width], "counts": str}``.

    Parameters
    ----------
    name : name of the argument, for messages
    values : COCO run-length dicts (`counts` as str or bytes), :class:`~reveal_bench.masks.Rle`, or arrays (H, W)

        If a value has another format. The packing of masks checks later that the runs fill the image.

    Examples
    --------
    >>> read_masks("references", [{"size": (2, 2), "counts": b"04"}, [[1, 1], [1, 1]]])
    [{'size': [2, 2], 'counts': '04'}, {'size': [2, 2], 'counts': '04'}]
    """
    return [_read_mask(f"{name}[{i}]", value) for i, value in enumerate(values)]


def _read_mask(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, Rle):
        return {"size": list(value.size), "counts": value.counts}
    if not isinstance(value, Mapping):
        array = None if value is None or isinstance(value, (str, bytes)) else _array(value)
        if array is None or array.ndim != 2 or array.size == 0:
            wanted = 'a run-length mask {"size": [height, width], "counts": str} or an array (height, width)'
            raise ValueError(f"`{name}` must be {wanted}, got {_short(value)}")
        rle = encode_mask(array)
        return {"size": list(rle.size), "counts": rle.counts}
    missing = [key for key in ("size", "counts") if key not in value]
    if missing:
        raise ValueError(f"`{name}` must have the keys size and counts, got {sorted(map(str, value))}")
    size, counts = _array(value["size"]), value["counts"]
    if size is None or size.shape != (2,) or size.dtype.kind not in "iu":
        raise ValueError(f"`{name}['size']` must be [height, width], got {_short(value['size'])}")
    if isinstance(counts, bytes):
        counts = counts.decode("ascii", "replace")
    if not isinstance(counts, str):
        raise ValueError(f"`{name}['counts']` must be a COCO compressed string, got {_short(counts)}")
    return {"size": size.tolist(), "counts": counts}


def to_rles(masks: Sequence[Mapping[str, Any]]) -> list[Rle]:
    """Return stored masks as :class:`~reveal_bench.masks.Rle`."""
    return [Rle((int(mask["size"][0]), int(mask["size"][1])), mask["counts"]) for mask in masks]


POINTS, CELLS = 0, 1


def read_places(values: Sequence[Any], stored: int | None = None) -> tuple[list[Any], int]:
    """Return the predicted positions of a finding: per case a list of points, or a cell's name.

    Parameters
    ----------
    values : per case one point (x, y), points [(x, y), ...], a cell "D5", a run-length mask or bool array (its
        deepest pixel is the point), or None, [] or "" for an absent prediction
    stored : POINTS or CELLS, the format of earlier batches, if any

    Returns
    -------
    lists of [x, y], or names; an absent prediction is [] or ""
    POINTS or CELLS

    If a value has another format, or points and cells are mixed.

    Examples
    --------
    >>> read_places([(1.0, 2.0), [[3, 4], [5, 6]], None])
    ([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]], []], 0)
    >>> read_places(["D5", ""])
    (['D5', ''], 1)
    """
    kinds = [_kind_of_place(value) for value in values]
    present = {kind for kind in kinds if kind is not None} | ({stored} if stored is not None else set())
    if len(present) > 1:
        raise ArgumentError("predictions", "must be all points or all cells", "both")
    kind = present.pop() if present else POINTS
    if kind == CELLS:
        return [value if isinstance(value, str) else "" for value in values], CELLS
    return [_read_points(f"predictions[{i}]", value) for i, value in enumerate(values)], POINTS


def _kind_of_place(value: Any) -> int | None:
    if value is None or (hasattr(value, "__len__") and len(value) == 0):
        return None
    return CELLS if isinstance(value, str) else POINTS


def _read_points(name: str, value: Any) -> list[list[float]]:
    if _kind_of_place(value) is None:
        return []
    array = None if isinstance(value, (Rle, Mapping)) else _array(value)
    if isinstance(value, (Rle, Mapping)) or (array is not None and array.dtype.kind == "b" and array.ndim == 2):
        x, y = pack_masks(to_rles([_read_mask(name, value)])).deepest_xy([0])[0].tolist()
        return [] if x < 0 else [[float(x), float(y)]]
    if array is None or array.dtype.kind not in "iuf" or array.ndim not in (1, 2) or array.shape[-1] != 2:
        raise ValueError(f"`{name}` must be a point [x, y], a list of points, a cell or a mask, got {_short(value)}")
    points: list[list[float]] = array.astype(np.float64).reshape(-1, 2).tolist()
    return points


NAMES, VECTORS = 0, 1


def read_labels(
    predictions: Sequence[Any], references: Sequence[Any], stored: int | None = None
) -> tuple[list[Any], list[Any], int]:
    """Return the labels of studies, all as lists of names or all as vectors of 0 and 1.

    Raises
    ------
    ValueError
        If names and vectors are mixed, a vector contains anything but 0 and 1 or has another length, or a name is given
        twice.

    Examples
    --------
    >>> import numpy as np
    >>> read_labels([["Edema"], []], [(), {"Edema"}])
    ([['Edema'], []], [[], ['Edema']], 0)
    >>> read_labels(np.array([[0, 1]]), [[True, True]])
    ([[0, 1]], [[1, 1]], 1)
    """
    rows = {"predictions": [_entries(row) for row in predictions], "references": [_entries(row) for row in references]}
    kinds = {stored} if stored is not None else set()
    for name, column in rows.items():
        for i, row in enumerate(column):
            if row is None:
                got = _short(predictions[i] if name == "predictions" else references[i])
                raise ValueError(f"`{name}[{i}]` must be a list of label names or of 0 and 1, got {got}")
            kinds |= {NAMES if isinstance(entry, str) else VECTORS for entry in row}
    if len(kinds) > 1:
        raise ValueError("`predictions` and `references` must be all label names or all vectors of 0 and 1, got both")
    kind = kinds.pop() if kinds else NAMES
    width = max(len(row) for column in rows.values() for row in column if row is not None)
    for name, column in rows.items():
        for i, row in enumerate(column):
            _check_row(f"{name}[{i}]", row or [], kind, width)
    if kind == VECTORS:
        rows = {name: [[int(entry) for entry in row or []] for row in column] for name, column in rows.items()}
    return list(rows["predictions"]), list(rows["references"]), kind


def _entries(row: Any) -> list[Any] | None:
    if isinstance(row, (str, bytes, Mapping)) or not hasattr(row, "__iter__"):
        return None
    return sorted(row) if isinstance(row, (set, frozenset)) else [*row]


def _check_row(name: str, row: list[Any], kind: int, width: int) -> None:
    if kind == NAMES:
        twice = next((label for i, label in enumerate(row) if label in row[:i]), None)
        if twice is not None:
            raise ValueError(f"`{name}` must name a label once, got {twice!r} twice")
        return
    if len(row) != width:
        raise ValueError(f"`{name}` must have as many entries as the others ({width}), got {len(row)}")
    bad = next((entry for entry in row if entry not in (0, 1)), None)
    if bad is not None:
        raise ValueError(f"`{name}` must hold 0 and 1, got {_short(bad)}")


def label_matrix(
    predictions: Sequence[Any], references: Sequence[Any], *, labels: Sequence[str] | None = None
) -> tuple[np.typing.NDArray[np.bool_], np.typing.NDArray[np.bool_], list[str]]:
    """Return stored labels as bool arrays (n_studies, n_labels), and the names of the columns.

    Parameters
    ----------
    predictions, references : results of :func:`read_labels`
    labels : all labels, in order; by default the names that occur, sorted, or "0", "1", ... for vectors

    Raises
    ------
    ValueError
        If a name is not in `labels`, `labels` is empty, or a vector has another length.
    """
    if labels is not None and len(set(labels)) != len(labels):
        raise ArgumentError("labels", "must not hold one twice", list(labels))
    rows = [*predictions, *references]
    if any(len(row) and not isinstance(row[0], str) for row in rows):
        widths = sorted({len(row) for row in rows})
        names = [str(i) for i in range(widths[-1])] if labels is None else list(labels)
        if widths != [len(names)]:
            raise ValueError(
                f"`predictions` and `references` must have one entry per label ({len(names)}), got {widths}"
            )
        return np.array(predictions, bool), np.array(references, bool), names
    names = sorted({name for row in rows for name in row}) if labels is None else list(labels)
    if not names:
        raise ArgumentError("labels", "must be given when no study has a label")
    code = {name: i for i, name in enumerate(names)}
    matrices = []
    for argument, column in (("predictions", predictions), ("references", references)):
        matrix = np.zeros((len(column), len(names)), bool)
        for i, row in enumerate(column):
            unlisted = next((name for name in row if name not in code), None)
            if unlisted is not None:
                raise ValueError(f"`{argument}[{i}]` must be in `labels` {names}, got {unlisted!r}")
            matrix[i, [code[name] for name in row]] = True
        matrices.append(matrix)
    return matrices[0], matrices[1], names


INTEGERS, CATEGORIES = 0, 1


def read_ratings(
    predictions: Sequence[Any], references: Sequence[Any], stored: int | None = None
) -> tuple[list[Any], list[Any], int]:
    """Return the ratings of two raters: integers, or names of categories.

    Raises
    ------
    ValueError
        If a rating is neither, or the two are mixed.

    Examples
    --------
    >>> read_ratings([1, 2.0], [True, 3])
    ([1, 2], [1, 3], 0)
    """
    kinds = {stored} if stored is not None else set()
    columns = []
    for name, values in (("predictions", predictions), ("references", references)):
        for i, value in enumerate(values):
            is_number = isinstance(value, (bool, int, float, np.number, np.bool_)) and float(value).is_integer()
            if not is_number and not isinstance(value, str):
                raise ValueError(f"`{name}[{i}]` must be an integer or the name of a category, got {_short(value)}")
            kinds.add(INTEGERS if is_number else CATEGORIES)
        columns.append([value if isinstance(value, str) else int(value) for value in values])
    if len(kinds) > 1:
        raise ValueError("`predictions` and `references` must be all integers or all names of categories, got both")
    return columns[0], columns[1], kinds.pop()


def _array(value: Any) -> np.typing.NDArray[Any] | None:
    try:
        return np.asarray(value)
    except ValueError:  # rows of different lengths
        return None


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
