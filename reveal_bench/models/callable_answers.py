"""What a callable may answer, checked and turned into the fields of a canonical prediction.

Conventions
-----------
Asked for a finding, an answer is a mapping with one or more of these; a model that crops or pads the picture must map
its answer back to pixels of the full one (:mod:`reveal_bench.geometry`):

=============  ======================================================================================================
``point``      (x, y)
``cell``       a cell of the grid over the central square, such as "D5"
``box``        (x, y, width, height)
``mask``       array (height, width) of the full picture, bool, or whole numbers 0 and 1
``heat_map``   array (rows, columns) of any size, scaled evenly over the full picture; larger is likelier
``score``      confidence in [0, 1] that the finding is there, beside one of the others
=============  ======================================================================================================

A heat map gives a point, so the two exclude each other, and with a threshold a mask as well: see
:mod:`reveal_bench.metrics.heat_maps`; at Otsu's level, holes are kept. A constant map has an empty mask and no point.

Asked for labels, an answer has either ``labels``, a list of those that are present, or ``probabilities``, one in [0, 1]
for every label, and the same of the two for all studies.

Numbers may be Python's, numpy's, or whatever numpy can read, such as a tensor of torch in main memory.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import ArgumentError
from reveal_bench.entries.jsonl import Entry
from reveal_bench.entries.report import ProblemLog
from reveal_bench.entries.source import Limits
from reveal_bench.kinds.localization.checks import EntryChecker
from reveal_bench.kinds.localization.records import Manifest
from reveal_bench.kinds.questions import Question
from reveal_bench.masks import encode_mask
from reveal_bench.metrics.heat_maps import largest_point, mask_above, otsu_mask

__all__ = ["LabelReader", "PlaceReader", "Reader", "Threshold", "check_threshold"]

Reader = Callable[[Question, Mapping[str, Any]], dict[str, Any]]
"""(question, answer) -> fields of a prediction, beside the ids; ValueError, naming field, rule and value, if wrong."""
Threshold = float | Literal["otsu"] | None

_PLACES = ("point", "cell", "box", "mask", "heat_map")


def check_threshold(threshold: Threshold) -> None:
    """Raise ValueError unless `threshold` is one."""
    is_number = isinstance(threshold, float) and 0 < threshold < 1
    if threshold is not None and threshold != "otsu" and not is_number:
        raise ArgumentError("threshold", "must be a number in (0, 1), 'otsu' or None", repr(threshold))


class PlaceReader:
    """Reads answers about a finding, with the checks that the linter makes of a file.

    Parameters
    ----------
    manifest : of the split that is asked
    grid : cells per side
    threshold : of heat maps, or None if they give points alone
    """

    def __init__(self, manifest: Manifest, grid: int, threshold: Threshold) -> None:
        self._threshold = threshold
        self._log = ProblemLog("answer", 1000)
        self._checker = EntryChecker(manifest, grid, "jsonl", Limits(), self._log)

    def __call__(self, question: Question, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The fields point, cell, box, rle and score, as far as `answer` gives them."""
        _check_names(answer, (*_PLACES, "score"), at_least_one_of=_PLACES)
        for other in ("point", "mask") if self._threshold is not None else ("point",):
            if "heat_map" in answer and other in answer:
                raise ValueError(f"`{other}` may not stand beside `heat_map`, which gives one, got both")
        fields: dict[str, Any] = {}
        for name, shape in (("point", (2,)), ("box", (4,)), ("score", ())):
            if name in answer:
                fields[name] = _numbers(name, answer[name], shape)
        if "cell" in answer:
            fields["cell"] = answer["cell"]
        if "mask" in answer:
            fields["rle"] = _rle(_mask(answer["mask"], question.image.size))
        if "heat_map" in answer:
            fields |= self._heat_fields(answer["heat_map"], question.image.size)
        self._check(question, fields)
        return fields

    def _heat_fields(self, heat_map: Any, size: tuple[int, int]) -> dict[str, Any]:
        point = largest_point(heat_map, size)
        fields: dict[str, Any] = {} if point is None else {"point": list(point)}
        if self._threshold == "otsu":
            fields["rle"] = _rle(otsu_mask(heat_map, size, fill=False))
        elif self._threshold is not None or point is None:
            fields["rle"] = _rle(mask_above(heat_map, size, self._threshold or 0.0))
        return fields

    def _check(self, question: Question, fields: Mapping[str, Any]) -> None:
        self._checker.check(Entry(1, {"image_id": question.image.image_id, "finding": question.finding, **fields}))
        errors = [problem for problem in self._log.problems if problem.severity == "error"]
        self._log.problems.clear()
        if errors:
            hint = f" ({errors[0].hint})" if errors[0].hint else ""
            raise ValueError(f"`{errors[0].field}` {errors[0].message}{hint}")


class LabelReader:
    """Reads answers about a study.

    Parameters
    ----------
    kind : "labels" or "probabilities", whichever earlier studies were answered with
    """

    def __init__(self, kind: str | None = None) -> None:
        self._kind = kind

    def __call__(self, question: Question, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The field labels, in the benchmark's order, or probabilities."""
        _check_names(answer, ("labels", "probabilities"))
        (kind, *others) = answer
        if others or self._kind not in (None, kind):
            after = f" after {self._kind}" if self._kind else ""
            rule = "the answer must give `labels` or `probabilities`, the same for all studies"
            raise ValueError(f"{rule}, got {' and '.join(answer)}{after}")
        fields = {kind: (_label_list if kind == "labels" else _probabilities)(answer[kind], question.choices)}
        self._kind = kind
        return fields


def _check_names(answer: Mapping[str, Any], known: Sequence[str], *, at_least_one_of: Sequence[str] = ()) -> None:
    unknown = [name for name in answer if name not in known]
    if unknown or not set(answer) & set(at_least_one_of or known):
        raise ValueError(f"the answer must hold some of {', '.join(known)}, got {reprlib.repr(list(answer))}")


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged lists; tensors on a device, or with gradients
        raise ValueError(f"`{name}` must be readable by numpy, got {type(value).__name__}: {error}") from None


def _numbers(name: str, value: Any, shape: tuple[int, ...]) -> Any:
    array = _array(name, value)
    if array.dtype.kind not in "iuf" or array.shape != shape:
        wanted = f"{shape[0]} numbers" if shape else "a number"
        raise ValueError(f"`{name}` must be {wanted}, got {reprlib.repr(value)}")
    return array.tolist()


def _mask(value: Any, size: tuple[int, int]) -> npt.NDArray[Any]:
    array = _array("mask", value)
    if array.shape != size:
        raise ArgumentError("mask", f"must have the picture's shape {size} (height, width)", array.shape)
    if array.dtype.kind not in "biu" or (array.dtype.kind != "b" and not np.isin(array, (0, 1)).all()):
        raise ArgumentError("mask", "must be of bool or of 0 and 1", f"{array.dtype} (a `heat_map`?)")
    return array


def _rle(mask: npt.NDArray[Any]) -> dict[str, Any]:
    rle = encode_mask(mask)
    return {"size": list(rle.size), "counts": rle.counts}


def _label_list(value: Any, choices: Sequence[str]) -> list[str]:
    if not isinstance(value, list | tuple | set | frozenset):
        raise ArgumentError("labels", "must be a list of labels", reprlib.repr(value))
    if any(label not in choices for label in value) or len(set(value)) != len(value):
        raise ArgumentError("labels", f"must be among {', '.join(choices)}, each once", reprlib.repr(list(value)))
    return [label for label in choices if label in value]


def _probabilities(value: Any, choices: Sequence[str]) -> dict[str, float]:
    if not isinstance(value, Mapping) or set(value) != set(choices):
        got = list(value) if isinstance(value, Mapping) else value
        raise ArgumentError("probabilities", f"must map every one of {', '.join(choices)}", reprlib.repr(got))
    probabilities = {label: _numbers(f"probabilities[{label}]", value[label], ()) for label in choices}
    for label, probability in probabilities.items():
        if not 0 <= probability <= 1:
            raise ValueError(f"`probabilities[{label}]` must lie in [0, 1], got {probability} (a logit?)")
    return {label: float(probability) for label, probability in probabilities.items()}
