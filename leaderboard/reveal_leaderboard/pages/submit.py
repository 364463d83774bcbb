"""Sending a file: choose, drop, read the linter's report, say what made it, send, watch it being scored."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import gradio as gr

from reveal_bench.metrics import METRICS
from reveal_leaderboard.intake import Intake
from reveal_leaderboard.metadata import KINDS, PROMPT_STYLES, Metadata, MetadataError, read_metadata
from reveal_leaderboard.pages import drawing
from reveal_leaderboard.pages.drawing import message, text
from reveal_leaderboard.release import ReleasedScore
from reveal_leaderboard.standings import METRIC_NAMES, iso_time
from reveal_leaderboard.store import Store, Submission

__all__ = ["build", "progress_view"]

POLL_SECONDS = 1.0
FINAL = ("scored", "refused", "failed")
FIELDS = {
    "model.name": "Model name",
    "model.version": "Version",
    "organization": "Organization",
    "links.code": "Code",
    "links.paper": "Paper",
    "links.model": "Model page",
    "training_data": "Training data",
}
NO_PROMPT = "none (not prompted)"
EMPTY = message("info", "No file yet.", "Its report appears here as soon as it is dropped. Checking costs nothing.")
STEPS = ("queued", "scoring", "scored")

log = logging.getLogger(__name__)


def build(intake: Intake) -> None:
    """Lay out the page inside the present Blocks."""
    names = list(intake.published)
    gr.HTML(
        "<header class='rv-head'><h1>Submit predictions</h1><p>JSON lines, CSV, Parquet, CheXlocalize or COCO JSON; "
        "the file is checked before it is sent. The images and findings asked are in the benchmark’s "
        "<a href='/api/v1/benchmarks'>manifest</a>.</p></header>"
    )
    with gr.Row():
        with gr.Column(min_width=300):
            gr.HTML("<h2 class='rv-part'>1. The file</h2>")
            benchmark = gr.Dropdown(names, value=names[0], label="Benchmark")
            allow_missing = gr.Checkbox(label="Score missing predictions as misses (otherwise they are errors)")
            file = gr.File(label="Prediction file", file_count="single", type="filepath", height=150)
        with gr.Column(min_width=300):
            gr.HTML("<h2 class='rv-part'>2. The model</h2>")
            fields = _model_form()
    gr.HTML("<h2 class='rv-part'>3. The linter’s report</h2>")
    report = gr.HTML(EMPTY, elem_id="report")
    send = gr.Button("Send for scoring", variant="primary", interactive=False, elem_id="send")
    gr.HTML("<h2 class='rv-part'>4. Progress</h2>")
    progress = gr.HTML(message("info", "Nothing sent yet."), elem_id="progress")
    sent = gr.State("")
    timer = gr.Timer(POLL_SECONDS, active=False)
    wire = _Handlers(intake)
    private: dict[str, Any] = {"api_visibility": "private"}
    chosen = [file, benchmark, allow_missing]
    gr.on([file.change, benchmark.change, allow_missing.change], wire.check, chosen, [report, send], **private)
    send.click(wire.send, [*chosen, *fields], [progress, send, sent, timer], **private)
    timer.tick(wire.watch, sent, [progress, timer], show_progress="hidden", **private)


def _model_form() -> list[gr.components.Component]:
    with gr.Row():
        name = gr.Textbox(label="Model name", placeholder="as shown on the board", max_length=64, min_width=180)
        version = gr.Textbox(label="Version (optional)", placeholder="2026-11-21", max_length=64, min_width=180)
    organization = gr.Textbox(label="Organization", placeholder="laboratory, company or person", max_length=64)
    with gr.Row():
        kinds = [(label, key) for key, label in KINDS.items()]
        kind = gr.Dropdown(kinds, value="multimodal_llm", label="Kind", min_width=180)
        style = gr.Dropdown([NO_PROMPT, *PROMPT_STYLES], value="zero-shot", label="Prompt style", min_width=180)
    with gr.Accordion("Links and training data (optional)", open=False):
        code = gr.Textbox(label="Code", placeholder="https://…", max_length=500)
        paper = gr.Textbox(label="Paper", placeholder="https://…", max_length=500)
        model = gr.Textbox(label="Model page", placeholder="https://…", max_length=500)
        training = gr.Textbox(label="Training data", lines=2, max_length=4000)
    return [name, version, organization, kind, style, code, paper, model, training]


class _Handlers:
    """What happens on the page's events."""

    def __init__(self, intake: Intake) -> None:
        self.intake = intake

    def check(self, path: str | None, benchmark: str, allow_missing: bool) -> tuple[str, Any]:
        """Lint the dropped file; the button opens only for a clean one."""
        if path is None:
            return EMPTY, gr.update(interactive=False)
        try:
            report = self.intake.lint(Path(path), benchmark, name=path, allow_missing=allow_missing)
        except Exception:
            log.exception("linting failed")
            return _our_fault("The file could not be checked."), gr.update(interactive=False)
        return drawing.lint_view(report), gr.update(interactive=report.ok)

    def send(
        self, path: str | None, benchmark: str, allow_missing: bool, *form: str | None
    ) -> tuple[str, Any, str, Any]:
        """Queue the file and start watching it."""
        stay = gr.update(interactive=True), "", gr.Timer(active=False)
        if path is None:
            return message("bad", "There is no file to send."), gr.update(interactive=False), *stay[1:]
        try:
            metadata = _read_form(form)
            with Path(path).open("rb") as stream:
                outcome = self.intake.submit(
                    stream, benchmark, metadata, filename=path, allow_missing=allow_missing, who="local:page"
                )
        except MetadataError as error:
            return _metadata_view(error), *stay
        except Exception:
            log.exception("sending failed")
            return _our_fault("The file could not be sent."), *stay
        if outcome.submission is None:
            return message("bad", "The file was not queued.", "See the linter’s report."), *stay
        shown = progress_view(self.intake.store, outcome.submission)
        return shown, gr.update(interactive=False), outcome.submission.id, gr.Timer(active=True)

    def watch(self, submission_id: str) -> tuple[Any, Any]:
        """The state of what was sent, until it is final."""
        submission = self.intake.store.get(submission_id)
        if submission is None:
            return gr.skip(), gr.Timer(active=False)
        return progress_view(self.intake.store, submission), gr.Timer(active=submission.status not in FINAL)


def _read_form(form: tuple[str | None, ...]) -> Metadata:
    name, version, organization, kind, style, code, paper, model, training = (value or None for value in form)
    document = {
        "model": {"name": name or "", "version": version},
        "organization": organization or "",
        "kind": kind,
        "prompt_style": None if style == NO_PROMPT else style,
        "links": {"code": code, "paper": paper, "model": model},
        "training_data": training,
    }
    return read_metadata(json.dumps(document))


def _metadata_view(problem: MetadataError) -> str:
    items = "".join(
        f"<li><b>{text(FIELDS.get(error['field'], error['field']))}</b>: {text(error['rule'])}</li>"
        for error in problem.errors
    )
    return message("bad", "Not sent: something about the model is missing or malformed.") + f"<ul>{items}</ul>"


def _our_fault(what: str) -> str:
    return message("bad", what, "The fault is on our side and is in the server’s log. Please try again.")


def progress_view(store: Store, submission: Submission) -> str:
    """Where a submission is, and its score once there is one."""
    parts = [_steps(submission), _state(store, submission)]
    score = store.score_of(submission.id)
    if score is not None:
        titles = {name: METRICS[name].title for name in METRIC_NAMES}
        parts.append(drawing.score_view(ReleasedScore.from_json(score.released), titles))
    return "".join(parts)


def _steps(submission: Submission) -> str:
    ended = submission.status in ("refused", "failed")
    steps = (*STEPS[:2], submission.status) if ended else STEPS
    at = steps.index(submission.status)
    items = []
    for i, step in enumerate(steps):
        state = "done" if i < at or (i == at and step in FINAL) else "now" if i == at else "to come"
        mark = {"done": "✓", "now": "●", "to come": "○"}[state]
        css_class = f"rv-step-{state.replace(' ', '-')}"
        items.append(f'<li class="{css_class}"><span aria-hidden="true">{mark}</span> {step}</li>')
    return f'<ol class="rv-steps">{"".join(items)}</ol>'


def _state(store: Store, submission: Submission) -> str:
    sent = f"Submission {submission.id}, sent {iso_time(submission.created_at)}."
    if submission.status == "queued":
        position = store.queue_position(submission)
        return message("busy", f"In the queue, position {position}.", sent)
    if submission.status == "scoring":
        return message("busy", f"Being scored, attempt {submission.attempts}.", sent)
    if submission.status == "scored":
        shown = message("good", f"{submission.model_name} is scored.", sent)
        return f'{shown}<p class="rv-summary"><a href="/">See it on the board</a></p>'
    return message("bad", f"The submission was {submission.status}.", store.events_of(submission.id)[-1].why)
