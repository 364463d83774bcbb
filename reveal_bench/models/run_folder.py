"""Write and read run folders, which contain the outcome of every question that a model was asked.

Conventions
-----------
A folder is written whole or not at all. ``run.json`` describes the questions and the model. ``transcript.jsonl`` has a
line (:class:`QuestionOutcome`) per question and epoch, in the order of the manifest. ``predictions.jsonl`` has the
canonical predictions (``predictions-1.jsonl`` and so on for several epochs). ``submission.json`` has the metadata for a
leaderboard, and ``summary.json`` the counts. Equal outcomes give equal bytes, because no file contains a time, path,
host or key. Coordinates are pixels of the full-size image.

A question without a usable answer has a line in the transcript but none in the predictions; it is scored as a miss.
Costs are exact decimals; answers without token counts are excluded from the cost and counted separately.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from reveal_bench.arguments import ArgumentError
from reveal_bench.files import write_all
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.detection.records import ScoredBox
from reveal_bench.kinds.localization.records import Box, Point
from reveal_bench.kinds.tasks.records import AnswerBox
from reveal_bench.masks import Rle
from reveal_bench.models.answer_words import Reply
from reveal_bench.models.answers import PARSER_VERSION
from reveal_bench.models.calibration import CoordinateCalibration
from reveal_bench.models.prices import Prices
from reveal_bench.models.questions import AskSettings, ShotUsed
from reveal_bench.predictions.files import GO_ON
from reveal_bench.version import __version__
from reveal_bench.words import count_text

RUN, TRANSCRIPT, SUMMARY, SUBMISSION = "run.json", "transcript.jsonl", "summary.json", "submission.json"
CONTROL_RUNS = "controls"
"""Subfolder that has a run folder per control."""
LOCK, SCRAPS = ".lock", (".*.json.*", ".*.jsonl.*", "logs/.inspect_tmp_*")
FREE = ("n_asked", "limit", "epochs", "prices", "harness", "calibration", "reveal_bench")
"""Fields of ``run.json`` that may differ when a run is resumed."""
LATER = {"calibration"}
"""Fields that runs of earlier versions lack."""
UNKNOWN = "not stated"
LONGEST_NAME, LONGEST_VALUE = 100, 500  # characters that submission.schema.json allows
NOT_IN_NAMES, LONGEST_PLAIN_NAME = re.compile(r"[^A-Za-z0-9 ._+()/-]"), 64  # characters that the leaderboard allows

Scalar = str | int | float | bool | None
System = Literal["multimodal_llm", "cnn", "saliency", "human_reader", "other"]


@dataclass(frozen=True)
class RunInfo:
    """Contents of ``run.json``: the questions, the model and the programs.

    Attributes
    ----------
    n_questions, n_asked : number of questions in the split, and number of questions asked (see `limit`)
    model : name to publish
    grid : cells per side of the grid for cells in the answers
    settings : settings of the prompts; None if the model is not a language model, or another program asked it
    parameters : parameters sent to the model, such as temperature and max_tokens
    harness : name -> version of the programs that asked
    dataset : digest of the split's data, see :func:`reveal_bench.models.questions.describe_split`
    system : kind of model, as in ``submission.json``
    calibration : how the coordinates in `settings` were found; None if the user stated them
    """

    benchmark: str
    benchmark_version: str
    split: str
    kind: str
    n_questions: int
    n_asked: int
    model: str
    grid: int
    settings: AskSettings | None = None
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    epochs: int = 1
    limit: int | None = None
    prices: Prices | None = None
    harness: Mapping[str, str] = field(default_factory=dict)
    system: System = "multimodal_llm"
    dataset: str | None = None
    calibration: CoordinateCalibration | None = None
    reveal_bench: str = __version__

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ArgumentError("kind", f"must be one of {', '.join(KINDS)}", repr(self.kind))
        if not 1 <= len(self.model) <= LONGEST_NAME or not self.model.isprintable():
            raise ArgumentError(
                "model", f"must be a name of 1 to {LONGEST_NAME} characters in a line", repr(self.model)
            )
        if self.epochs < 1:
            raise ArgumentError("epochs", "must be at least 1", self.epochs)
        if self.settings is not None and self.settings.grid != self.grid:
            raise ArgumentError("grid", f"must equal the settings' {self.settings.grid}", self.grid)

    def document(self) -> dict[str, Any]:
        """Return the information as JSON."""
        parts = {name: (part := getattr(self, name)) and part.document() for name in _PARTS}
        return {"schema": 1, **{name: getattr(self, name) for name in _NAMES}, **parts}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RunInfo:
        """Return the information that :meth:`document` wrote; ValueError if a field is unknown, missing or invalid."""
        if not isinstance(document, dict) or not isinstance(document.get("model"), str):
            raise ValueError(f"must contain one JSON object with a `model`, got {str(document)[:100]}")
        if document.get("schema") != 1:
            raise ArgumentError("schema", "must be 1", f"{document.get('schema')!r}: another version wrote this run")
        known = {"schema", *_NAMES}
        if not known - LATER <= set(document) <= known:
            raise ValueError(f"the fields must be {sorted(known)}, got {sorted(document)}")
        fields: dict[str, Any] = {name: document.get(name) for name in _NAMES}
        fields["settings"] = fields["settings"] and AskSettings.from_document(fields["settings"])
        fields["prices"] = fields["prices"] and Prices.from_text(**fields["prices"])
        fields["calibration"] = fields["calibration"] and CoordinateCalibration.from_document(fields["calibration"])
        return cls(**fields)


_PARTS = ("settings", "prices", "calibration")
_NAMES = tuple(item.name for item in fields(RunInfo))


@dataclass(frozen=True)
class RunSummary:
    """``summary.json``.

    Attributes
    ----------
    n_expected : exchanges of the whole run: questions times epochs
    by_status : status -> exchanges; those with "not_asked" are still to be asked
    by_finding : finding -> status -> exchanges, for localizations; otherwise empty
    cost : None without prices
    without_usage : replies with unknown token counts, excluded from the cost
    """

    n_expected: int
    by_status: Mapping[str, int]
    by_finding: Mapping[str, Mapping[str, int]]
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost: Decimal | None
    without_usage: int
    served_models: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return the summary as JSON; the cost as exact decimal text."""
        cost = None if self.cost is None else _decimal_text(self.cost)
        return {"schema": 1, **asdict(self), "cost": cost, "parser_version": PARSER_VERSION}


@dataclass(frozen=True)
class Run:
    """The contents of a run folder; `predictions` are the paths of its prediction files, one per epoch."""

    folder: Path
    info: RunInfo
    exchanges: tuple[QuestionOutcome, ...]
    summary: RunSummary
    predictions: tuple[Path, ...]

    @property
    def drawings(self) -> RunSummary | None:
        """Counts and cost of the drawings that found the coordinates, which `summary` omits; None without drawings."""
        known = self.info.calibration
        if known is None:
            return None
        tokens = known.tokens or ((None, None, None),) * len(known.answers)
        outcomes = [
            QuestionOutcome("", "", "answered" if text else "empty", None, 1, text or None, tokens_in=n_in,
                            tokens_cached=n_cached, tokens_out=n_out)
            for text, (n_in, n_cached, n_out) in zip(known.answers, tokens, strict=True)
        ]  # fmt: skip
        return _summary(outcomes, replace(self.info, n_asked=len(outcomes), epochs=1))


def prediction_files(epochs: int) -> list[str]:
    """Return the names of the prediction files: ``predictions.jsonl``, or ``predictions-1.jsonl`` and so on."""
    return ["predictions.jsonl"] if epochs == 1 else [f"predictions-{epoch}.jsonl" for epoch in range(1, epochs + 1)]


def write_outputs(
    out: Path, exchanges: Sequence[QuestionOutcome], run: RunInfo, *, organization: str = UNKNOWN
) -> RunSummary:
    """Write a run folder without the asking program's logs; every file is written whole or not at all.

    Parameters
    ----------
    exchanges : at most one per question and epoch, in the order of the manifest
    organization : the submitter, for ``submission.json``

    Raises
    ------
    ValueError
        If there are two exchanges of one question and epoch, more than the run asks, or an unknown epoch.
    """
    _check(exchanges, run)
    place = {question: i for i, question in enumerate(dict.fromkeys(e.question for e in exchanges))}
    ordered = sorted(exchanges, key=lambda e: (place[e.question], e.epoch))
    summary = _summary(ordered, run)
    files: dict[str, str | dict[str, Any]] = {
        RUN: run.document(),
        TRANSCRIPT: "".join(json.dumps(to_line(exchange, run.kind)) + "\n" for exchange in ordered),
        SUBMISSION: _submission(run, summary, organization),
        SUMMARY: summary.document(),
    }
    kind = KINDS[run.kind]
    for epoch, name in enumerate(prediction_files(run.epochs), start=1):
        answered = [e for e in ordered if e.epoch == epoch and e.status == "answered"]
        files[name] = kind.predictions.to_jsonl(chain.from_iterable(map(kind.predictions.from_answer, answered)))
    _write_all(Path(out), files)
    for path in Path(out).glob("predictions*.jsonl"):
        if path.name not in files:  # left by a run with another number of epochs
            path.unlink()
    return summary


def write_run_info(out: Path, run: RunInfo) -> None:
    """Write only ``run.json``, which a run does before it asks."""
    _write_all(Path(out), {RUN: run.document()})


def read_run_info(out: Path) -> RunInfo | None:
    """Return ``run.json`` of a folder; None if there is no such file, ValueError if another program wrote it."""
    path = Path(out) / RUN
    try:
        return RunInfo.from_document(json.loads(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{path}: {error}") from None


def check_same_run(out: Path, asked: RunInfo) -> None:
    """Raise ValueError if `out` contains a run with other settings or another model.

    The number of questions, prices and versions of programs may differ; see also :func:`check_keeps_answers`.
    """
    held = read_run_info(out)
    if held is None:
        return
    earlier, now = held.document(), asked.document()
    for name in (name for name in earlier if name not in FREE and earlier[name] != now[name]):
        here, there = earlier[name], now[name]
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            parts = sorted(part for part in {*here, *there} if here.get(part) != there.get(part))
            here, there = ({part: side.get(part) for part in parts} for side in (here, there))
        raise ValueError(f"{out} contains another run: {RUN} says {name} {here!r}, but {there!r} is requested")


@contextlib.contextmanager
def single_run(out: Path) -> Iterator[None]:
    """Prevent two processes from writing a run folder, if the system has file locks; remove leftovers of a killed run.

    Raises
    ------
    ValueError
        If another process writes the folder.
    """
    out.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    path = out / LOCK
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(lock.fileno()), path.stat()):  # the previous process removed the lock file
                raise FileNotFoundError
        except OSError:
            raise ValueError(f"{out} is being written by another run") from None
        try:
            for pattern in SCRAPS:
                for scrap in out.glob(pattern):
                    scrap.unlink()
            yield
        finally:
            path.unlink(missing_ok=True)


def check_keeps_answers(out: Path, asked: Collection[tuple[str, int]]) -> None:
    """Raise ValueError if `out` has a transcript with an answer to a (question, epoch) that is not in `asked`."""
    if not (out / TRANSCRIPT).is_file():
        return
    lost = [one.question for one in read_run(out).exchanges if (one.question, one.epoch) not in asked]
    if lost:
        answers = count_text(len(lost), "answer")
        rule = "must be a new folder, unless all its questions are asked again"
        raise ValueError(f"{out} {rule}: {answers} in it would be lost, such as that to {lost[0]!r}")


def read_run(out: Path) -> Run:
    """Read a run folder; ValueError names file and line if the folder is damaged or is not a run folder."""
    out = Path(out)
    info = read_run_info(out)
    path = out / TRANSCRIPT
    if info is None:
        raise ValueError(f"{out} is not a run folder: it has no {RUN}")
    if not path.is_file():
        raise ValueError(f"{out} has no {TRANSCRIPT}, because its run was killed: {GO_ON}")
    exchanges = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            exchanges.append(from_line(json.loads(line), info.kind))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}:{number}: not a line of a transcript: {error!r}") from None
    paths = tuple(out / name for name in prediction_files(info.epochs))
    return Run(out, info, tuple(exchanges), _summary(exchanges, info), paths)


def _check(exchanges: Sequence[QuestionOutcome], run: RunInfo) -> None:
    for (question, epoch), n in Counter((e.question, e.epoch) for e in exchanges).items():
        if n > 1:
            raise ArgumentError(
                "exchanges", "must have one exchange per question and epoch", f"{n} of {question!r}, {epoch}"
            )
        if not 1 <= epoch <= run.epochs:
            raise ArgumentError("epoch", f"must be in [1, {run.epochs}]", f"{epoch} of {question!r}")
    if len(exchanges) > (most := run.n_asked * run.epochs):
        raise ArgumentError("exchanges", f"must be at most {most}, the number of questions", len(exchanges))


def _summary(exchanges: Sequence[QuestionOutcome], run: RunInfo) -> RunSummary:
    expected = run.n_asked * run.epochs
    by_status = Counter(exchange.status for exchange in exchanges)
    if len(exchanges) < expected:
        by_status["not_asked"] = expected - len(exchanges)
    by_finding: dict[str, Counter[str]] = {}
    for exchange in exchanges:
        if exchange.finding is not None:
            by_finding.setdefault(exchange.finding, Counter())[exchange.status] += 1
    counted = [exchange for exchange in exchanges if None not in (exchange.tokens_in, exchange.tokens_out)]
    tokens = {name: sum(getattr(exchange, name) or 0 for exchange in counted) for name in TOKENS}
    n_in, n_cached, n_out = tokens.values()
    return RunSummary(
        expected,
        dict(sorted(by_status.items())),
        {finding: dict(sorted(counts.items())) for finding, counts in sorted(by_finding.items())},
        **tokens,
        cost=None if run.prices is None else run.prices.cost(n_in, n_out, tokens_cached=n_cached),
        without_usage=sum(e.text is not None and None in (e.tokens_in, e.tokens_out) for e in exchanges),
        served_models=tuple(sorted({e.served_model for e in exchanges if e.served_model})),
    )


def _submission(run: RunInfo, summary: RunSummary, organization: str) -> dict[str, Any]:
    """Return the metadata that a leaderboard needs, in the format of ``submission.schema.json``."""
    how = {} if run.settings is None else run.settings.document()
    style, shots_seed = how.pop("style", None), how.pop("seed", None)
    parameters: dict[str, Scalar] = {
        "model": run.model,  # the exact name; leaderboards allow fewer characters
        **how,
        "shots_seed": shots_seed,  # this is not the model's sampling seed
        **run.parameters,
        "epochs": run.epochs,
        "limit": run.limit,
        **{name: getattr(summary, name) for name in TOKENS},
        "cost": None if summary.cost is None else _decimal_text(summary.cost),
        "answers_without_usage": summary.without_usage,
        "exchanges": summary.n_expected,
        **{f"exchanges_{status}": n for status, n in summary.by_status.items()},
        "served_models": ", ".join(summary.served_models)[:LONGEST_VALUE] or None,
        **{f"version_{name}": version for name, version in run.harness.items()},
        **({} if run.settings is None else {"version_parser": PARSER_VERSION}),
        "version_reveal_bench": run.reveal_bench,
    }
    return {
        "model": {"name": _plain_name(run.model)},
        "organization": organization,
        "kind": run.system,
        "prompt_style": style,
        "parameters": parameters,
        **({"grid": run.grid} if KINDS[run.kind].questions.uses_grid else {}),
    }


def _plain_name(model: str) -> str:
    """Return a name that leaderboards accept, such as "llama3.2-vision-11b" for "llama3.2-vision:11b"."""
    name = NOT_IN_NAMES.sub("-", unicodedata.normalize("NFKC", model)).lstrip(" ._+()/-")
    return name[:LONGEST_PLAIN_NAME].strip() or "model"


def _decimal_text(value: Decimal) -> str:
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _write_all(out: Path, files: Mapping[str, str | dict[str, Any]]) -> None:
    """Write texts and JSON documents under temporary names, then rename them all."""
    out.mkdir(parents=True, exist_ok=True)
    texts = {name: x if isinstance(x, str) else json.dumps(x, indent=2) + "\n" for name, x in files.items()}
    write_all({out / name: text for name, text in texts.items()})


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """The outcome of one question in one epoch.

    Attributes
    ----------
    question : id of the question
    unit : id of the question's image, study or task
    status : one of :data:`reveal_bench.models.answer_words.STATUSES`; only "answered" questions have a prediction
    finding : the finding of a localization, otherwise None
    epoch : number of the epoch, from 1
    text : the model's text; None if there is no reply
    note : why the text could not be parsed, or how it was parsed
    cell, point, box, detections, mask, labels, probabilities, answer, boxes : the parsed answer; the last two are for
        open tasks
    score : the model's confidence, if any
    error : the reason for a missing reply
    sent_temperature : temperature sent to the model; None if no temperature was sent
    tokens_in, tokens_cached, tokens_out : None if the reply has no counts; `tokens_cached` is part of `tokens_in`
    shots : examples in the prompt
    """

    question: str
    unit: str
    status: str
    finding: str | None = None
    epoch: int = 1
    text: str | None = None
    note: str | None = None
    cell: str | None = None
    point: Point | None = None
    box: Box | None = None
    detections: tuple[ScoredBox, ...] = ()
    mask: Rle | None = None
    score: float | None = None
    labels: tuple[str, ...] | None = None
    probabilities: Mapping[str, float] | None = None
    answer: str | None = None
    boxes: tuple[AnswerBox, ...] = ()
    error: str | None = None
    stop_reason: str | None = None
    served_model: str | None = None
    sent_temperature: float | None = None
    tokens_in: int | None = None
    tokens_cached: int | None = None
    tokens_out: int | None = None
    shots: tuple[ShotUsed, ...] = ()


def with_reply(asked: QuestionOutcome, reply: Reply, **facts: Any) -> QuestionOutcome:
    """Return a question's exchange, with its reply and the additional fields in `facts`."""
    names = ("status", "note", "cell", "point", "box", "detections", "labels", "boxes")
    as_read = {name: getattr(reply, name) for name in names}
    return replace(asked, **{**as_read, "answer": reply.text, **facts})


_ALWAYS = ("status", "text", "note", "error", "stop_reason", "served_model", "sent_temperature")
TOKENS = ("tokens_in", "tokens_cached", "tokens_out")
_READ = ("cell", "point", "box", "detections", "mask", "score", "labels", "probabilities", "answer", "boxes")
_SEVERAL = ("detections", "boxes")


def to_line(exchange: QuestionOutcome, kind: str) -> dict[str, Any]:
    """Return the transcript line of an exchange in a benchmark of `kind`; empty parsed fields are omitted."""
    line = asdict(exchange)
    as_read = {name: line[name] for name in _READ if line[name] or (name not in _SEVERAL and line[name] is not None)}
    about: dict[str, Any] = {"question": exchange.question, "epoch": exchange.epoch, KINDS[kind].key: exchange.unit}
    about |= {"finding": exchange.finding} if exchange.finding else {}
    return about | {name: line[name] for name in (*_ALWAYS, *TOKENS, "shots")} | as_read


def from_line(line: dict[str, Any], kind: str) -> QuestionOutcome:
    """Return the exchange that :func:`to_line` wrote.

    Raises
    ------
    ValueError, TypeError, KeyError, AttributeError
        If the line is invalid.
    """
    values = dict(line)
    values["unit"] = values.pop(KINDS[kind].key)
    for name in ("point", "box", "labels"):
        if name in values:
            values[name] = tuple(values[name])
    if "mask" in values:
        height, width = values["mask"]["size"]
        values["mask"] = Rle((height, width), values["mask"]["counts"])
    values["detections"] = tuple(ScoredBox(tuple(one["box"]), one["score"]) for one in values.get("detections", ()))
    values["boxes"] = tuple(AnswerBox(**{**box, "box": tuple(box["box"])}) for box in values.get("boxes", ()))
    values["shots"] = tuple(ShotUsed(**shot) for shot in values["shots"])
    return QuestionOutcome(**values)
