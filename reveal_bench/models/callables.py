"""Use any Python callable as a model: its answers become predictions and, on request, a run folder.

Conventions
-----------
``predict(image, finding)`` gets the full image (PIL, grey, of the manifest's size; its ``info`` contains ``image_id``
and ``view``) and the finding's name. It returns a mapping such as ``{"point": (x, y)}``, in pixels of the full image,
or None for no answer. A model that crops or pads the image must map its answer back to pixels of the full image
(:mod:`reveal_bench.geometry`). A mapping has one or more of these keys:

=============  ======================================================================================================
``point``      (x, y) ``cell``       a cell of the grid over the central square, such as "D5" ``box``        (x, y,
width, height) ``mask``       array (height, width) of the full image, bool, or whole numbers 0 and 1 ``heat_map`` array
(rows, columns) of any size, scaled evenly over the full image; larger is likelier ``score``      confidence in [0, 1]
that the finding is present, with one of the others =============
======================================================================================================

A heat map gives a point, and with a threshold also a mask (:mod:`reveal_bench.metrics.heat_maps`), so an answer with a
heat map must not contain a point or mask of its own. Masks at Otsu's threshold keep their holes. A constant map has an
empty mask and no point.

For benchmarks of labels, ``predict(images, None)`` gets all images of a study and returns either ``labels``, a list of
the labels present, or ``probabilities``, a number in [0, 1] for every label. All answers must have the same key.
Numbers may be Python's, numpy's, or anything that numpy can read, such as a tensor of torch in main memory.

The callable runs in this process and uses no network. The callable's answers are stored in a work file in the run
folder as they come, so that a killed run resumes. The work file stays there with the results, so that repeating the
call asks nothing again.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from reveal_bench.arguments import PROBABILITY_RULE, ArgumentError
from reveal_bench.kinds import KINDS, known_kind
from reveal_bench.kinds.findings.records import FindingsPrediction
from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.localization.checks import EntryChecker
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, read_manifest
from reveal_bench.kinds.questions import Question, ViewedImage
from reveal_bench.masks import Rle, encode_mask
from reveal_bench.metrics.heat_maps import largest_point, mask_above, otsu_mask
from reveal_bench.models.questions import AskSettings, PictureSource, describe_split, list_questions
from reveal_bench.models.run_folder import (
    QuestionOutcome,
    RunInfo,
    Scalar,
    System,
    check_keeps_answers,
    check_same_run,
    read_run_info,
    single_run,
    write_outputs,
    write_run_info,
)
from reveal_bench.predictions.jsonl import RawPrediction
from reveal_bench.predictions.limits import Limits
from reveal_bench.predictions.report import ProblemLog

if TYPE_CHECKING:
    from PIL.Image import Image

Progress = Callable[[int, int], None]

WORK_FILE = "answers.jsonl"
"""File in the run folder with a line per answered question, written as answers arrive."""


@dataclass(frozen=True, slots=True)
class CallableFailure:
    """A question for which the callable raised an error or gave an invalid answer; `message` describes the problem."""

    question: str
    message: str


@dataclass(frozen=True)
class CallableRun:
    """Result of running a callable on a split.

    Attributes
    ----------
    predictions : predictions for the answered questions, in the order of the manifest
    no_answer : ids of the questions answered with None
    failures : questions that failed; empty unless ``on_error="miss"``
    info, exchanges : as in a run folder
    """

    predictions: tuple[LocalizationPrediction, ...] | tuple[FindingsPrediction, ...]
    no_answer: tuple[str, ...]
    failures: tuple[CallableFailure, ...]
    info: RunInfo
    exchanges: tuple[QuestionOutcome, ...]

    def __repr__(self) -> str:
        asked = f"{self.info.benchmark} {self.info.benchmark_version}, split {self.info.split}"
        counts = f"{len(self.predictions):,} predictions, {len(self.no_answer):,} without an answer"
        return f"<{self.info.model} on {asked}: {counts}, {len(self.failures):,} failures>"

    def to_jsonl(self) -> str:
        """Return the canonical prediction file; without its run folder, an incomplete one needs ``--allow-missing``."""
        return KINDS[self.info.kind].predictions.to_jsonl(self.predictions)


def run_callable(
    predict: Callable[..., Any],
    folder: Path | str,
    split: str,
    *,
    batch_size: int | None = None,
    threshold: Threshold = None,
    grid: int | None = None,
    limit: int | None = None,
    on_error: Literal["raise", "miss"] = "raise",
    name: str | None = None,
    system: System = "other",
    parameters: Mapping[str, Scalar] | None = None,
    out: Path | str | None = None,
    organization: str = "not stated",
    pictures: PictureSource | None = None,
    progress: Progress | None = None,
) -> CallableRun:
    """Ask a callable every question of a split.

    Parameters
    ----------
    predict : the callable (see the module's docstring); with `batch_size` it gets lists, ``predict(images, findings)``,
        and returns a list
    folder, split : dataset folder and one of its splits; no reference is read, so a private holdout also works
    batch_size : maximum questions per call; None for one call per question, which gets an image and a finding instead
        of lists
    threshold : threshold at which heat maps also give masks: a number in (0, 1), or "otsu"
    grid : cells per side of the grid for `cell`; by default the folder's
    limit : ask only this many questions, the first ones
    on_error : "raise" if the callable raises or its answer is invalid, or count the question as a "miss" and continue;
        the questions of a failed batch are then asked again one by one
    name, system, parameters, organization : facts about the model for the run folder; `name` defaults to that of
        `predict`
    out : run folder to write. Answers are stored in this folder as they come, so that after a kill the same call asks
        only the remaining questions. Only the type of the callable's errors is stored, because messages may contain
        paths
    pictures : source of the images; by default the folder itself
    progress : called with (questions done, all questions)

    Raises
    ------
    ValueError
        If an option is invalid, the benchmark has open tasks, an answer is invalid (and `on_error` is "raise"), a batch
        does not get one answer per question, or `out` contains another run.
    RuntimeError
        If the callable raises and `on_error` is "raise"; the message names the question.
    """
    folder = Path(folder)
    _check_options(batch_size, threshold, on_error)
    if known_kind(read_folder_info(folder)).scoring.scored_by == "readers":
        raise ArgumentError("folder", "must have a benchmark of localizations or labels", f"one of tasks, {folder}")
    settings = AskSettings.of_folder(folder, grid=grid)
    asked = list_questions(folder, split, settings, limit=limit)
    model = name or str(getattr(predict, "__name__", type(predict).__name__))
    run = _run_info(folder, split, settings, len(asked), limit, model, system, parameters or {}, threshold)
    with (
        nullcontext() if out is None else single_run(Path(out)),
        _WorkFile(None if out is None else Path(out), run, asked) as work,
    ):
        rest = [question for question in asked if question.id not in work.outcomes]
        films = _Films(folder, split, pictures)
        read = _reader(folder, run, threshold, work)
        caller = _Caller(predict, batch_size is not None, on_error == "miss", films, read)
        size = batch_size or 1
        for start in range(0, len(rest), size):
            work.add(caller.ask(rest[start : start + size]))
            if progress is not None:
                progress(len(asked) - len(rest) + min(start + size, len(rest)), len(asked))
        result = _result(asked, work.outcomes, run)
        if out is not None:
            write_outputs(Path(out), result.exchanges, run, organization=organization)
    return result


def _run_info(
    folder: Path,
    split: str,
    settings: AskSettings,
    n_asked: int,
    limit: int | None,
    model: str,
    system: System,
    parameters: Mapping[str, Scalar],
    threshold: Threshold,
) -> RunInfo:
    about = describe_split(folder, split)
    return RunInfo(
        **about,
        n_questions=len(list_questions(folder, split, settings)),
        n_asked=n_asked,
        model=model,
        grid=settings.grid,
        parameters={**parameters, **({"threshold": threshold} if KINDS[about["kind"]].questions.uses_grid else {})},
        limit=limit,
        system=system,
    )


def _reader(folder: Path, run: RunInfo, threshold: Threshold, work: _WorkFile) -> Reader:
    if KINDS[run.kind].questions.uses_grid:
        return PlaceReader(read_manifest(folder, run.split), run.grid, threshold)
    kinds = [name for outcome in work.outcomes.values() for name in outcome.answer]
    return LabelReader(kinds[0] if kinds else None)


def _check_options(batch_size: int | None, threshold: Threshold, on_error: str) -> None:
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        raise ArgumentError("batch_size", "must be a whole number of at least 1, or None", repr(batch_size))
    check_threshold(threshold)
    if on_error not in ("raise", "miss"):
        raise ArgumentError("on_error", "must be 'raise' or 'miss'", repr(on_error))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The outcome of a question; `answer` has the fields of a prediction, and `detail` is not written to disk."""

    question: str
    status: str
    answer: Mapping[str, Any]
    error: str | None = None
    detail: str | None = None


class _Films:
    """Copies of images for the callable, which may therefore draw on them."""

    def __init__(self, folder: Path, split: str, pictures: PictureSource | None) -> None:
        self._folder, self._split, self._pictures = folder, split, pictures
        self._last: tuple[str, Image] | None = None

    def open(self, image: ViewedImage) -> Image:
        if self._pictures is None:
            from reveal_bench.models.pictures import SplitImages

            self._pictures = SplitImages(self._folder, self._split)
        if self._last is None or self._last[0] != image.image_id:  # an image's questions are consecutive
            self._last = image.image_id, self._pictures.open(image.image_id)
        copy = self._last[1].copy()
        if (copy.height, copy.width) != image.size:
            got = (copy.height, copy.width)
            raise ValueError(f"the picture of {image.image_id!r} must be {image.size} (height, width), got {got}")
        copy.info = {"image_id": image.image_id, "view": image.view}
        return copy


@dataclass(frozen=True)
class _Caller:
    predict: Callable[..., Any]
    is_batched: bool
    keeps_misses: bool
    films: _Films
    read: Reader

    def ask(self, batch: Sequence[Question]) -> list[_Outcome]:
        inputs: list[Any] = [
            self.films.open(q.image) if q.finding is not None else [self.films.open(image) for image in q.images]
            for q in batch
        ]
        findings = [question.finding for question in batch]
        try:
            answers = self.predict(inputs, findings) if self.is_batched else [self.predict(inputs[0], findings[0])]
        except Exception as error:
            return self._failed(batch, error)
        if not isinstance(answers, list | tuple) or len(answers) != len(batch):
            got = f"{len(answers)}" if isinstance(answers, list | tuple) else type(answers).__name__
            raise ArgumentError("predict", f"must answer a batch with a list of {len(batch)} answers", got)
        return [self._outcome(question, answer) for question, answer in zip(batch, answers, strict=True)]

    def _failed(self, batch: Sequence[Question], error: Exception) -> list[_Outcome]:
        detail = f"{type(error).__name__}: {error}"
        if not self.keeps_misses:
            more = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
            raise RuntimeError(f"`predict` failed on {batch[0].id!r}{more}: {detail}") from error
        if len(batch) > 1:
            return [outcome for question in batch for outcome in self.ask([question])]
        return [_Outcome(batch[0].id, "failed", {}, f"predict raised {type(error).__name__}", detail)]

    def _outcome(self, question: Question, answer: Any) -> _Outcome:
        if answer is None:
            return _Outcome(question.id, "empty" if question.present else "absent", {})
        try:
            if not isinstance(answer, Mapping):
                rule = "must be a mapping such as {'point': (x, y)}, or None"
                raise ValueError(f"the answer {rule}, got {type(answer).__name__}")
            return _Outcome(question.id, "answered", self.read(question, answer))
        except ValueError as error:
            if self.keeps_misses:
                return _Outcome(question.id, "failed", {}, str(error))
            raise ValueError(f"answer to {question.id!r}: {error}") from None


class _WorkFile:
    """The outcomes so far, stored in a work file if there is a run folder; a line truncated by a kill is dropped.

    Raises
    ------
    ValueError
        If the folder contains another run, or its work file is damaged.
    """

    def __init__(self, out: Path | None, run: RunInfo, asked: Sequence[Question]) -> None:
        self.outcomes: dict[str, _Outcome] = {}
        self._file: BinaryIO | None = None
        if out is None:
            return
        path = out / WORK_FILE
        before = read_run_info(out)
        if before is None and path.exists() and path.stat().st_size:
            raise ValueError(f"{out} contains the answers of a run but no run.json: use an empty folder")
        if before is not None:
            check_same_run(out, run)
            check_keeps_answers(out, {(question.id, 1) for question in asked})
            if not path.exists():
                raise ValueError(f"{out} contains a run without {WORK_FILE}: use an empty folder")
            self._read(path)
        out.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        write_run_info(out, run)

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                outcome = _Outcome(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{path}:{number}: not a line of answers: {error}") from None
            self.outcomes[outcome.question] = outcome
        if len(whole) < len(data):
            with path.open("r+b") as file:
                file.truncate(len(whole))

    def __enter__(self) -> _WorkFile:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, outcomes: Sequence[_Outcome]) -> None:
        for outcome in outcomes:
            self.outcomes[outcome.question] = outcome
            if self._file is not None:
                kept = asdict(replace(outcome, detail=None))
                self._file.write(json.dumps(kept).encode() + b"\n")
        if self._file is not None:
            self._file.flush()


def _result(asked: Sequence[Question], outcomes: Mapping[str, _Outcome], run: RunInfo) -> CallableRun:
    results = [(question, outcomes[question.id]) for question in asked]
    failed = [outcome for _, outcome in results if outcome.status == "failed"]
    exchanges = [_exchange(question, outcome) for question, outcome in results]
    answered = [exchange for exchange in exchanges if exchange.status == "answered"]
    return CallableRun(
        tuple(chain.from_iterable(map(KINDS[run.kind].predictions.from_answer, answered))),
        tuple(outcome.question for _, outcome in results if outcome.status in ("empty", "absent")),
        tuple(CallableFailure(outcome.question, outcome.detail or outcome.error or "") for outcome in failed),
        run,
        tuple(exchanges),
    )


def _exchange(question: Question, outcome: _Outcome) -> QuestionOutcome:
    answer = outcome.answer
    rle, labels = answer.get("rle"), answer.get("labels")
    return QuestionOutcome(
        question.id,
        question.unit,
        outcome.status,
        question.finding,
        cell=answer.get("cell"),
        point=tuple(answer["point"]) if "point" in answer else None,
        box=tuple(answer["box"]) if "box" in answer else None,
        mask=None if rle is None else Rle((rle["size"][0], rle["size"][1]), rle["counts"]),
        score=answer.get("score"),
        labels=None if labels is None else tuple(labels),
        probabilities=answer.get("probabilities"),
        error=outcome.error,
    )


Reader = Callable[[Question, Mapping[str, Any]], dict[str, Any]]
"""Function (question, answer) -> fields of a prediction without ids; ValueError names field, rule and value."""
Threshold = float | Literal["otsu"] | None

_PLACES = ("point", "cell", "box", "mask", "heat_map")


def check_threshold(threshold: Threshold) -> None:
    """Raise ValueError unless `threshold` is valid."""
    is_number = isinstance(threshold, float) and 0 < threshold < 1
    if threshold is not None and threshold != "otsu" and not is_number:
        raise ArgumentError("threshold", "must be a number in (0, 1), 'otsu' or None", repr(threshold))


class PlaceReader:
    """Converts answers about a finding, and applies the linter's checks of prediction files.

    Parameters
    ----------
    manifest : manifest of the split
    grid : cells per side
    threshold : threshold for the masks of heat maps; None if heat maps give only points
    """

    def __init__(self, manifest: ImageManifest, grid: int, threshold: Threshold) -> None:
        self._threshold = threshold
        self._log = ProblemLog("answer", 1000)
        self._checker = EntryChecker(manifest, grid, "jsonl", Limits(), self._log)

    def __call__(self, question: Question, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that `answer` determines, among point, cell, box, rle and score."""
        _check_names(answer, (*_PLACES, "score"), at_least_one_of=_PLACES)
        for other in ("point", "mask") if self._threshold is not None else ("point",):
            if "heat_map" in answer and other in answer:
                raise ValueError(f"`{other}` must not be given with `heat_map`, which gives one, got both")
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
        self._checker.check(
            RawPrediction(1, {"image_id": question.image.image_id, "finding": question.finding, **fields})
        )
        errors = [problem for problem in self._log.problems if problem.severity == "error"]
        self._log.problems.clear()
        if errors:
            hint = f" ({errors[0].hint})" if errors[0].hint else ""
            raise ValueError(f"`{errors[0].field}` {errors[0].message}{hint}")


class LabelReader:
    """Converts answers about a study.

    Parameters
    ----------
    kind : "labels" or "probabilities", the key of answers on earlier studies; None if there are none
    """

    def __init__(self, kind: str | None = None) -> None:
        self._kind = kind

    def __call__(self, question: Question, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the field `labels`, in the benchmark's order, or `probabilities`."""
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
        raise ValueError(f"the answer must have some of {', '.join(known)}, got {reprlib.repr(list(answer))}")


def _array(name: str, value: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # ragged list, or tensor on a device or with gradients
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
        raise ArgumentError("mask", "must contain bool, or only 0 and 1", f"{array.dtype} (a `heat_map`?)")
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
            raise ArgumentError(f"probabilities[{label}]", PROBABILITY_RULE, probability)
    return {label: float(probability) for label, probability in probabilities.items()}
