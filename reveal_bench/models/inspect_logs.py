"""Read the outcome of every question from logs of inspect_ai.

Conventions
-----------
Logs are read in the order of their start. If several logs contain a question, the latest reply counts, or the latest
failure if there is no reply, so that interrupted and resumed runs need no clean-up. A sample that was interrupted with
its run counts as not asked. :mod:`reveal_bench.models.answers` parses the replies again; inspect's scores are ignored.
The logs contain all facts about the questions, so the dataset folder is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.questions import Question
from reveal_bench.models.answers import read_reply
from reveal_bench.models.endpoints import reason_text
from reveal_bench.models.questions import DESCRIBED, AskSettings, ShotUsed
from reveal_bench.models.run_folder import QuestionOutcome, RunInfo, Scalar, with_reply

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import ChatMessageAssistant, ModelUsage

ENDPOINT_MODEL = "openai-api/reveal/"
"""Prefix of inspect's name for a model at a given endpoint; the endpoint's own name for the model follows."""
SENT = ("temperature", "top_p", "max_tokens", "seed", "reasoning_effort", "reasoning_tokens", "frequency_penalty")
"""Fields of inspect's configuration that are sent to a model."""
READ_AT_ONCE = 100
"""Number of samples that are read from a log at once; each such read also reads the log's table of contents."""
NOT_SENT = "the temperature is from the configuration, because the log does not contain the temperature that was sent"


@dataclass(frozen=True)
class _Log:
    path: Path
    header: EvalLog
    facts: Mapping[str, Any]

    @property
    def key(self) -> dict[str, Any]:
        """The facts that must be equal in all logs of a run."""
        return {
            **{name: self.facts[name] for name in (*DESCRIBED, "n_questions")},
            "settings": AskSettings.from_document(self.facts["settings"]).document(),
            "model": self.header.eval.model.removeprefix(ENDPOINT_MODEL),
            "parameters": _parameters(self.header, self.facts),
        }


def import_logs(paths: Sequence[Path]) -> tuple[RunInfo, list[QuestionOutcome]]:
    """Read the logs of one run, made by ``reveal-bench run`` or by ``inspect eval reveal_bench/...``.

    Parameters
    ----------
    paths : ``.eval`` files, or folders of them

    Returns
    -------
    info : the run
    exchanges : one per asked question and epoch, in the order of the manifest

    Raises
    ------
    ValueError
        If no log is given, a log is damaged or of another task, or logs differ in task, model or settings.
    """
    logs = _opened(paths)
    if not logs:
        raise ArgumentError("paths", "must contain logs (.eval)", f"none in {', '.join(str(path) for path in paths)}")
    first = logs[0]
    for log in logs[1:]:
        differing = [name for name, value in log.key.items() if value != first.key[name]]
        if differing:
            pairs = "; ".join(f"{name} {first.key[name]} and {log.key[name]}" for name in differing)
            raise ValueError(f"all logs must be from one run: {first.path.name} and {log.path.name} differ in {pairs}")
    exchanges = _exchanges(logs)
    planned: dict[Any, None] = {}
    for log in logs:
        planned.update(dict.fromkeys(log.header.eval.dataset.sample_ids or ()))
    n_asked = max(len(planned), len({question for question, _ in exchanges}))
    n_questions = int(first.facts["n_questions"])
    settings = AskSettings.from_document(first.facts["settings"])
    info = RunInfo(
        **{name: first.facts[name] for name in DESCRIBED},
        n_questions=n_questions,
        n_asked=n_asked,
        model=first.key["model"],
        grid=settings.grid,
        settings=settings,
        parameters=first.key["parameters"],
        epochs=max([log.header.eval.config.epochs or 1 for log in logs] + [epoch for _, epoch in exchanges]),
        limit=None if n_asked == n_questions else n_asked,
        harness=dict(sorted((first.header.eval.packages or {}).items())),
    )
    place = {sample: i for i, sample in enumerate(planned)}
    ordered = sorted(exchanges.values(), key=lambda item: (place.get(item[0], len(place)), item[1].epoch))
    return info, [exchange for _, exchange in ordered]


def read_log_folder(folder: Path) -> dict[tuple[str, int], QuestionOutcome]:
    """Return (question, epoch) -> exchange from a run's own logs; empty if there is no log.

    Raises
    ------
    ValueError
        If a log is damaged, or of another task.
    """
    try:
        logs = _opened([folder]) if folder.is_dir() else []
        return {key: exchange for key, (_, exchange) in _exchanges(logs).items()}
    except ValueError as error:
        raise ValueError(f"{error}; delete this file to ask its questions again") from None


def read_completions(folder: Path) -> dict[str, str]:
    """Return sample id -> the sample's last completion in all logs of a folder; empty if there is no log.

    Raises
    ------
    ValueError
        If a log is damaged, or of another program's task.
    """
    samples = [sample for log in (_opened([folder]) if folder.is_dir() else []) for sample in _samples(log)]
    return {str(one.id): one.output.completion for one in samples if one.error is None and one.output.choices}


def _opened(paths: Sequence[Path]) -> list[_Log]:
    files: list[Path] = []
    for path in paths:
        if not Path(path).exists():
            raise ArgumentError("paths", "must exist", path)
        files += sorted(Path(path).rglob("*.eval")) if Path(path).is_dir() else [Path(path)]
    logs = [_open(path) for path in dict.fromkeys(files)]
    return sorted(logs, key=lambda log: (log.header.eval.created, log.path.name))


def _open(path: Path) -> _Log:
    from inspect_ai.log import read_eval_log

    try:
        header = read_eval_log(str(path.resolve()), header_only=True)
    except Exception as error:  # zip, JSON and pydantic raise different errors
        raise ValueError(f"{path} is damaged, or not a log of inspect_ai: {type(error).__name__}: {error}") from None
    facts = (header.eval.metadata or {}).get("reveal_bench")
    if not isinstance(facts, dict):
        raise ValueError(f"{path} is the log of another task, {header.eval.task!r}, not of one of reveal_bench")
    return _Log(path, header, facts)


def _exchanges(logs: Sequence[_Log]) -> dict[tuple[str, int], tuple[Any, QuestionOutcome]]:
    """Return (question, epoch) -> (sample's id, sample's outcome)."""
    exchanges: dict[tuple[str, int], tuple[Any, QuestionOutcome]] = {}
    for log in logs:
        settings = AskSettings.from_document(log.facts["settings"])
        for sample in _samples(log):
            exchange = _exchange(sample, settings, log)
            if exchange is None:
                continue
            key = (exchange.question, exchange.epoch)
            if key not in exchanges or exchange.status != "failed" or exchanges[key][1].status == "failed":
                exchanges[key] = (sample.id, exchange)
    return exchanges


def _samples(log: _Log) -> Iterator[EvalSample]:
    """Yield the samples of a log in their planned order, read in batches because they contain images."""
    from inspect_ai.log import read_eval_log_sample_summaries, read_eval_log_samples_by_id

    place = str(log.path.resolve())
    try:
        held = {(one.id, one.epoch) for one in read_eval_log_sample_summaries(place)}
        epochs = range(1, (log.header.eval.config.epochs or 1) + 1)
        planned = product(log.header.eval.dataset.sample_ids or (), epochs)
        while some := list(islice((one for one in planned if one in held), READ_AT_ONCE)):
            yield from read_eval_log_samples_by_id(place, some)
    except Exception as error:
        raise ValueError(f"{log.path} is damaged: {type(error).__name__}: {error}") from None


def _exchange(sample: EvalSample, settings: AskSettings, log: _Log) -> QuestionOutcome | None:
    """Return the outcome of a sample; None if the sample was interrupted with its run."""
    try:
        question = Question.from_document(sample.metadata["question"])
        epoch = int(sample.metadata["first_epoch"]) + sample.epoch - 1
        shots = tuple(ShotUsed(**shot) for shot in sample.metadata["shots"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{log.path}: sample {sample.id} lacks facts about its question: {error!r}") from None
    asked = QuestionOutcome(question.id, question.unit, "failed", question.finding, epoch, shots=shots)
    if sample.error is not None or not sample.output.choices:
        reason = "no reply" if sample.error is None else sample.error.message
        if _was_cut_short(reason) or (sample.error is None and log.header.status == "cancelled"):
            return None
        return replace(asked, error=reason_text(reason))
    return _answered(asked, sample, question, settings, log)


def _answered(
    asked: QuestionOutcome, sample: EvalSample, question: Question, settings: AskSettings, log: _Log
) -> QuestionOutcome:
    output, text = sample.output, sample.output.completion
    reply = read_reply(text, question, settings, stop_reason=output.stop_reason)
    sent = sample.metadata.get("sent")
    configured = _parameters(log.header, log.facts).get("temperature")
    notes = [
        reply.note,
        _why_empty(output.message) if reply.status == "empty" else "",
        NOT_SENT if sent is None and configured is not None else "",
    ]
    tokens_in, cached, tokens_out = token_counts(output.usage)
    return with_reply(
        asked,
        reply,
        text=text,
        note="; ".join(note for note in notes if note) or None,
        stop_reason=output.stop_reason,
        served_model=output.model or None,
        sent_temperature=configured if sent is None else sent["temperature"],
        tokens_in=tokens_in,
        tokens_cached=cached,
        tokens_out=tokens_out,
    )


def _why_empty(message: ChatMessageAssistant) -> str:
    """Return the reason for a reply without text, if the reply has something else."""
    if message.tool_calls:
        return "the model called a tool instead of answering"
    if isinstance(message.content, list) and message.content:
        return "all text is in the reasoning field: check the server's reasoning parser"
    return ""


def token_counts(usage: ModelUsage | None) -> tuple[int | None, int | None, int | None]:
    """Return the numbers of tokens sent, of tokens sent that the provider had in its cache, and of tokens written.

    inspect counts tokens from the cache separately. All three numbers are None if one is negative.
    """
    if usage is None or min(usage.input_tokens, usage.output_tokens, usage.input_tokens_cache_read or 0) < 0:
        return None, None, None
    cached = usage.input_tokens_cache_read
    return usage.input_tokens + (cached or 0) + (usage.input_tokens_cache_write or 0), cached, usage.output_tokens


def _was_cut_short(reason: str) -> bool:
    """Return True if a sample ended because its run ended."""
    return reason.startswith(("CancelledError(", "Cancelled(", "KeyboardInterrupt(", "NotAskedError("))


def _parameters(header: EvalLog, facts: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return the parameters sent to the model, from the run's facts or else from inspect's configuration."""
    if "parameters" in facts:
        return dict(facts["parameters"])
    config = {
        **header.eval.model_generate_config.model_dump(exclude_none=True),
        **header.plan.config.model_dump(exclude_none=True),
    }
    return {name: config[name] for name in SENT if name in config}
