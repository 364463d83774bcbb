"""Ask a model every question of a split, with inspect_ai; a repeated call asks only the remaining questions.

Conventions
-----------
Every answer is logged in ``<out>/logs`` before another question is asked in its place, so that a killed run loses only
requests under way. The remaining questions are determined from the logs of all earlier runs, and asked in parts of
:data:`PART` questions, each with its own log. (inspect's own ``eval_set`` resumes as well, but buffers unwritten
samples in the user's home, and does not distinguish failed questions from questions to ask again.)

If a model's convention for coordinates is unknown, the model is first asked about drawings
(:mod:`reveal_bench.models.calibration`). The convention found is stored in ``run.json``, so that a resumed run uses it
again.

A question whose request failed after all retries stays "failed" in the run and counts as a miss; only `ask_again` asks
it again. Images are not logged. Nothing is printed, and nothing is written outside `out` except one unnamed scratch
file.

The key of an `endpoint` follows the rules of :mod:`reveal_bench.models.endpoints`. Without `endpoint`, a provider takes
key and address from the environment variables documented by inspect_ai.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import math
import os
import shutil
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.kinds.folder import AnyFolder
from reveal_bench.kinds.questions import Question
from reveal_bench.models.calibration import CoordinateCalibration, calibrate
from reveal_bench.models.chat_responses import normalise_response
from reveal_bench.models.coordinates import AUTO
from reveal_bench.models.endpoints import KEY_VARIABLE, RunStoppedError, check_endpoint, is_sealed
from reveal_bench.models.inspect_logs import ENDPOINT_MODEL, read_log_folder, token_counts
from reveal_bench.models.prices import Prices
from reveal_bench.models.questions import DESCRIBED, AskSettings
from reveal_bench.models.run_folder import (
    CONTROL_RUNS,
    QuestionOutcome,
    RunInfo,
    RunSummary,
    Scalar,
    check_keeps_answers,
    check_same_run,
    read_run_info,
    single_run,
    write_outputs,
    write_run_info,
)
from reveal_bench.models.run_monitor import Progress, RunWatcher

if TYPE_CHECKING:
    from reveal_bench.models.inspect_tasks import Asking

LOGS, SCRATCH = "logs", ".scratch"
PART = 500
"""Questions per log, because a log is rewritten after every answer."""
FOREIGN = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS", "OPENAI_ADMIN_KEY")
"""Environment variables whose values the SDK would send to any endpoint."""
PARAMETERS = ("temperature", "max_tokens", "top_p", "reasoning_effort", "seed")
OWN_FIELDS = ("model", "messages", "stream", "n")
PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True)
class ModelChoice:
    """The model to ask, its parameters, and the limits of its requests.

    Parameters
    ----------
    model : inspect's name of the model, such as "openai/gpt-5", or with `endpoint` the endpoint's name
    endpoint : base URL of an OpenAI-compatible API, such as ``http://localhost:8000/v1``
    label : name to publish; `model` by default
    temperature, max_tokens, top_p, reasoning_effort, seed : None omits the parameter; `seed` is that of the first epoch
        and increases by one with each further epoch
    extra_body : fields to add to the body of every request, such as ``{"chat_template_kwargs": {...}}``
    attempt_timeout : whole seconds that one attempt may take
    max_retries : further attempts after an attempt that broke, hung, or got status 408, 409, 429 or 5xx
    max_connections : concurrent requests
    log_images : log the images; do not use this with patients' images
    instance : an ``inspect_ai.model.Model`` to ask instead of the named model

    Raises
    ------
    ValueError
        If a value is out of range, or a key would go to another machine over plain http.
    """

    model: str
    endpoint: str | None = None
    label: str | None = None
    temperature: float | None = 0.0
    max_tokens: int | None = None
    top_p: float | None = None
    reasoning_effort: str | None = None
    seed: int | None = None
    extra_body: Mapping[str, Any] | None = None
    attempt_timeout: int = 120
    max_retries: int = 8
    max_connections: int = 8
    log_images: bool = False
    instance: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise ArgumentError("model", "must name a model", "a blank")
        if self.endpoint is None and self.instance is None and "/" not in self.model:
            raise ArgumentError(
                "model", "must be provider/name, or have an `endpoint`", repr(self.model), ("endpoint",)
            )
        for name, low in (("attempt_timeout", 1), ("max_connections", 1), ("max_retries", 0), ("max_tokens", 1)):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < low):
                raise ArgumentError(name, f"must be a whole number of at least {low}", repr(value))
        for name, high in (("temperature", math.inf), ("top_p", 1.0)):
            value = getattr(self, name)
            if value is not None and not (0 <= value <= high and math.isfinite(value)):
                raise ArgumentError(name, f"must be a number from 0 to {high:g}", repr(value))
        own = next((name for name in self.extra_body or () if name in (*OWN_FIELDS, *PARAMETERS)), None)
        if own is not None:
            raise ArgumentError("extra_body", f"must not have fields that the run sets ({', '.join(OWN_FIELDS)})", own)
        if self.endpoint is not None:
            check_endpoint(self.endpoint)

    @property
    def name(self) -> str:
        """The name to publish."""
        return self.label or self.model

    @property
    def parameters(self) -> dict[str, Scalar]:
        """The parameters sent with the messages."""
        sent = {name: value for name in PARAMETERS if (value := getattr(self, name)) is not None}
        return sent if self.extra_body is None else sent | {"extra_body": json.dumps(self.extra_body, sort_keys=True)}

    def sent(self, epoch: int = 1) -> dict[str, Any]:
        """Return the parameters of an epoch as inspect_ai takes them."""
        sent: dict[str, Any] = {**self.parameters}
        sent |= {} if self.seed is None else {"seed": self.seed + epoch - 1}
        return sent if self.extra_body is None else sent | {"extra_body": dict(self.extra_body)}


def run_model(
    folder: AnyFolder,
    split: str,
    out: Path,
    settings: AskSettings,
    choice: ModelChoice,
    *,
    epochs: int = 1,
    limit: int | None = None,
    prices: Prices | None = None,
    ask_again: bool = False,
    organization: str = "not stated",
    counterfactuals: Path | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """Ask a model the questions of a split, and write the run folder.

    Parameters
    ----------
    folder, split : dataset folder with its images, or a part of it, and the split to ask
    out : the run folder; if it contains a run of the same model and settings, its remaining questions are asked
    epochs : number of times that every question is asked
    limit : ask only the first `limit` questions; a later call may raise the limit
    prices : prices of tokens, for the cost
    ask_again : ask failed questions again; if no question has an answer, model and settings may differ
    organization : the submitter, for ``submission.json``
    counterfactuals : a phantom's images without each finding, for the control "without-finding"
    progress : a :data:`reveal_bench.models.run_monitor.Progress`, called from another thread than the caller's but
        never concurrently

    Raises
    ------
    ValueError
        If folder, split, settings or model are invalid, or `out` contains another run or is being written.
    CalibrationError
        If `settings` leave the coordinates to the model, and no convention fits its answers.
    RunStoppedError
        If no question was answered, or too many requests in a row failed (:mod:`reveal_bench.models.run_monitor`).
    KeyboardInterrupt
        If the run was interrupted. After this error and RunStoppedError, the run folder contains all results so far.
    ImportError
        If `inspect_ai` is not installed.
    """
    out = Path(out)
    if epochs < 1:
        raise ArgumentError("epochs", "must be at least 1", epochs)
    with single_run(out), contained_environment(out):
        if read_run_info(out) is None and (out / LOGS).is_dir() and any((out / LOGS).iterdir()):
            raise ValueError(f"{out} must be a run folder or empty: it has logs but no run.json")
        settings, calibration = _calibrated(out, settings, choice, progress)
        asking = _asking_class().of_folder(folder, split, settings, limit=limit, counterfactuals=counterfactuals)
        info = _info(asking, choice, epochs, limit, prices, calibration)
        done = read_log_folder(out / LOGS)
        is_unanswered = all(exchange.status == "failed" for exchange in done.values()) and calibration is None
        if not (ask_again and is_unanswered):  # a run without answers may be asked again with corrected settings
            check_same_run(out, info)
        _check_shots(out, done, asking)
        wanted = [(question.id, epoch) for question in asking.questions for epoch in range(1, epochs + 1)]
        check_keeps_answers(out, set(wanted))
        write_run_info(out, info)
        left = {key for key in wanted if key not in done or (ask_again and done[key].status == "failed")}
        count = _watcher(
            choice, progress, "asking", len(wanted), [done[key] for key in wanted if key in done and key not in left]
        )
        try:
            for epoch in range(1, epochs + 1):
                questions = [question for question in asking.questions if (question.id, epoch) in left]
                for start in range(0, len(questions), PART):
                    _ask(asking, questions[start : start + PART], epoch, out, choice, count)
        finally:
            done = read_log_folder(out / LOGS)
            exchanges = [done[key] for key in wanted if key in done]
            summary = write_outputs(out, exchanges, info, organization=organization)
    if exchanges and all(exchange.status == "failed" for exchange in exchanges):
        raise RunStoppedError(f"no question was answered; last reason: {exchanges[-1].error}", count.last_status)
    return summary


def run_controls(
    folder: AnyFolder, split: str, out: Path, choice: ModelChoice, controls: Sequence[str], **options: Any
) -> dict[str, RunSummary]:
    """Ask the questions of a run again under each control, and write run folders ``<out>/controls/<name>``.

    Parameters
    ----------
    out : the folder of the run, whose settings are used
    controls : names of :data:`reveal_bench.models.controls.CONTROLS`
    options : options of :func:`run_model`

    Returns
    -------
    The summary of each control; raises as :func:`run_model`.
    """
    info = read_run_info(out)
    if info is None or info.settings is None:
        raise ArgumentError("out", "must be the folder of a run", out)
    # The list checks all names before a question is asked.
    asked = [(name, replace(info.settings, control=name)) for name in dict.fromkeys(controls)]
    return {
        name: run_model(folder, split, out / CONTROL_RUNS / name, settings, choice, **options)
        for name, settings in asked
    }


def _calibrated(
    out: Path, settings: AskSettings, choice: ModelChoice, progress: Progress | None
) -> tuple[AskSettings, CoordinateCalibration | None]:
    """Return settings with the model's convention, and the calibration stored in this folder or a new one."""
    held = read_run_info(out)
    known = None if held is None else held.calibration
    if settings.coordinates != AUTO:
        return settings, known if held is not None and held.settings == settings else None
    if known is None:
        asking = _asking_class().of_drawings(settings)
        count = _watcher(choice, progress, "calibrating", len(asking.questions), [])
        log = evaluate_task(
            asking.task(watcher=count), out / SCRATCH / "drawings", choice, choice.sent(), count, whole=True
        )
        outputs = {sample.metadata["question"]["id"]: sample.output for sample in log.samples or ()}
        drawn = [outputs.get(question.id) for question in asking.questions]
        texts = ["" if one is None or one.stop_reason == "content_filter" else one.completion for one in drawn]
        if not any(texts):
            raise RunStoppedError(f"no drawing was answered; last reason: {count.last_error}", count.last_status)
        known = calibrate(texts, replace(asking.settings, corners=settings.corners))
        known = replace(known, tokens=tuple(token_counts(one and one.usage) for one in drawn))
    return replace(settings, coordinates=known.coordinates, corners=known.corners), known


def _ask(
    asking: Asking, questions: Sequence[Question], epoch: int, out: Path, choice: ModelChoice, count: RunWatcher
) -> None:
    """Ask some questions, and write one log."""
    facts = {"parameters": choice.parameters}
    task = asking.task(questions, epoch=epoch, facts=facts, watcher=count, keep_pictures=choice.log_images)
    evaluate_task(task, out / LOGS, choice, choice.sent(epoch), count)


def evaluate_task(
    task: Any,
    logs: Path,
    choice: ModelChoice,
    sent: Mapping[str, Any],
    count: RunWatcher,
    *,
    whole: bool = False,
    role: str | None = None,
) -> Any:
    """Run a task and return its log, or only the log's header unless `whole`; raise KeyboardInterrupt if interrupted.

    The task asks this model, even where the task names a `role`.
    """
    import inspect_ai

    model = _model(choice)
    client: Any = getattr(model.api, "client", None)
    if hasattr(client, "max_retries"):
        client.max_retries = 0  # the SDK's own retries would be neither visible nor counted
    with count.watch_retries(model.api, choice.max_retries):
        made = inspect_ai.eval(
            task,
            model=model,
            model_roles=None if role is None else {role: model},
            log_dir=str(logs),
            log_format="eval",
            log_images=choice.log_images,
            log_realtime=False,  # otherwise inspect_ai writes a database in the user's home
            log_buffer=1,
            log_header_only=not whole,
            log_level="critical",
            display="none",
            score_display=False,
            fail_on_error=False,
            retry_on_error=1,
            score_on_error=True,
            ctl_server=False,
            max_samples=choice.max_connections,
            max_connections=choice.max_connections,
            max_retries=choice.max_retries,
            attempt_timeout=choice.attempt_timeout,
            **sent,
        )
    if not made or made[0].status == "cancelled":  # inspect treats Ctrl-C as a normal end
        raise KeyboardInterrupt
    count.check()
    log = made[0]
    if log.status != "success":
        raise RunStoppedError(f"inspect_ai gave up: {log.error.message if log.error else log.status}")
    return log


def _watcher(
    choice: ModelChoice, progress: Progress | None, what: str, total: int, done: Sequence[QuestionOutcome]
) -> RunWatcher:
    return RunWatcher(progress, what, total, done, patience=choice.attempt_timeout)


def _asking_class() -> type[Asking]:
    try:
        from reveal_bench.models.inspect_tasks import Asking
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("inspect_ai", "anyio", "openai"):
            raise
        raise ImportError("asking a model needs inspect_ai: pip install 'reveal-bench[run]'") from None
    return Asking


def _model(choice: ModelChoice) -> Any:
    from inspect_ai._util.error import PrerequisiteError
    from inspect_ai.model import get_model
    from rich.text import Text  # removes the markup that inspect writes for a terminal

    if choice.instance is not None:
        return choice.instance
    try:
        if choice.endpoint is None:
            return get_model(choice.model, memoize=False)
        _shield(choice.endpoint)
        key = os.environ.get(KEY_VARIABLE) or "none"  # the SDK requires a key, which an open endpoint ignores
        model = get_model(ENDPOINT_MODEL + choice.model, base_url=choice.endpoint, api_key=key, memoize=False)
    except (PrerequisiteError, ValueError) as error:
        plain = Text.from_markup(str(error)).plain if isinstance(error, PrerequisiteError) else str(error)
        raise ValueError(f"`model` {choice.model!r} cannot be asked: {plain}") from None
    client: Any = model.api.http_client  # type: ignore[attr-defined]
    client.follow_redirects = False
    client.event_hooks = {**client.event_hooks, "response": [*client.event_hooks["response"], normalise_response]}
    api: Any = model.api
    api.messages_to_openai = _without_auto_detail(api.messages_to_openai)
    return model


def _without_auto_detail(own: Callable[[Any], Awaitable[list[Any]]]) -> Callable[[Any], Awaitable[list[Any]]]:
    """Return a function that makes messages like `own`, but without `detail` "auto", which some servers refuse."""

    async def messages_to_openai(messages: Any) -> list[Any]:
        made = await own(messages)
        parts = [part for message in made if isinstance(message.get("content"), list) for part in message["content"]]
        for image in (part["image_url"] for part in parts if "image_url" in part):
            if image.get("detail") == "auto":
                del image["detail"]
        return made

    return messages_to_openai


def _info(
    asking: Asking,
    choice: ModelChoice,
    epochs: int,
    limit: int | None,
    prices: Prices | None,
    calibration: CoordinateCalibration | None,
) -> RunInfo:
    versions = {name: importlib.metadata.version(name) for name in ("inspect_ai", "openai")}
    return RunInfo(
        **{name: asking.facts[name] for name in (*DESCRIBED, "n_questions")},
        n_asked=len(asking.questions),
        model=choice.name,
        grid=asking.settings.grid,
        settings=asking.settings,
        parameters=choice.parameters,
        epochs=epochs,
        limit=limit,
        prices=prices,
        harness=versions,
        calibration=calibration,
    )


def _check_shots(out: Path, done: Mapping[tuple[str, int], QuestionOutcome], asking: Asking) -> None:
    """Raise ValueError if earlier questions had other examples, because the references have changed."""
    for (question, _), exchange in done.items():
        if question in asking.shots and exchange.shots != tuple(shot.used for shot in asking.shots[question]):
            rule = "its dataset folder has changed since"
            raise ValueError(f"{out} contains another run: {question!r} was asked with other examples, {rule}")


def _shield(endpoint: str) -> None:
    """Clean the environment before each log, because inspect_ai reads .env each time."""
    check_endpoint(endpoint)
    for name in FOREIGN:
        os.environ.pop(name, None)
    if not is_sealed(endpoint):  # a proxy could read key and images
        for proxy in PROXIES:
            os.environ.pop(proxy, None)
            os.environ.pop(proxy.upper(), None)


@contextlib.contextmanager
def contained_environment(out: Path) -> Iterator[None]:
    """Redirect the files of inspect_ai and the SDK to a scratch folder in `out` during a run."""
    scratch = (out / SCRATCH).resolve()
    scratch_variables = {
        "XDG_DATA_HOME": str(scratch),
        "XDG_CACHE_HOME": str(scratch),
        "INSPECT_TRACE_FILE": str(scratch / "trace.log"),
        "INSPECT_TRACE_LEVEL": "CRITICAL",
        "INSPECT_CACHE_DIR": str(scratch),
    }
    before, root = dict(os.environ), logging.getLogger()
    handlers, level = list(root.handlers), root.level
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ.update(scratch_variables)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings are about calls of inspect_ai and invalid replies
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)  # this also removes variables read from .env
        root.handlers[:] = handlers
        root.setLevel(level)
        shutil.rmtree(scratch, ignore_errors=True)
