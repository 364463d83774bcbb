"""The page Submit: drop a file, read the report on its problems, describe the model, confirm, and send.

After sending, the page of the submission opens (:mod:`.submission`). A ``submission.json`` can fill the form about the
model. The page lists further contents of this file (parameters, thresholds, grid, contact), which are sent as well.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from reveal_bench.predictions.report import statistics_in_words
from reveal_leaderboard.accounts.accounts import TeamNameError
from reveal_leaderboard.accounts.people import Actor, NotPermittedError, Team, team_key
from reveal_leaderboard.boards.catalogue import UnknownBenchmarkError
from reveal_leaderboard.custody import Lint, ParseFailed
from reveal_leaderboard.store import boards, quota
from reveal_leaderboard.store.boards import BoardClosedError
from reveal_leaderboard.store.metadata import KINDS, PROMPT_STYLES, Metadata, MetadataError, read_metadata
from reveal_leaderboard.store.store import KeyReusedError, NotAllowedError
from reveal_leaderboard.web.pages import board_notes
from reveal_leaderboard.web.pages.drawing import (
    ACTIONS,
    PRIVATE,
    QUIET,
    draw,
    link,
    message,
    note,
    part,
    sign_in,
)
from reveal_leaderboard.web.pages.first_sentences import opening
from reveal_leaderboard.web.pages.handlers import OUR_ERROR, Click, Handlers
from reveal_leaderboard.web.pages.header import build_header
from reveal_leaderboard.web.pages.submission_view import balance_view
from reveal_leaderboard.web.services import Services
from reveal_leaderboard.web.submissions import NotAMemberError

PAGE = "submit.html"

FIELDS = {
    "model.name": "Model name",
    "model.version": "Version",
    "organization": "Team",
    "kind": "Kind",
    "prompt_style": "Prompt style",
    "links.code": "Code",
    "links.paper": "Paper",
    "links.model": "Model page",
    "training_data": "Training data",
    "known_overlap": "Known overlap",
}
"""Fields of the form in order, as ``submission.json`` names them, with their labels."""

MORE = ("parameters", "grid", "thresholds", "tuning", "share_predictions", "contact")
"""Further contents of a ``submission.json``, which are sent as well."""

NO_PROMPT = "none (not prompted)"
MAX_FILE_BYTES = 64 * 1024
INFO = {"organization": "one of your teams"}
"""Field -> hint, which is shown unless the field has a problem."""


def build_form(*, any_organization: bool) -> tuple[list[gr.components.Component], gr.Accordion]:
    """Return the components of the fields in the order of `FIELDS`, and the accordion of the optional fields.

    Parameters
    ----------
    any_organization : whether a team outside the list may be entered (for the single user of local mode)
    """
    with gr.Row():
        name = gr.Textbox(label="Model name", placeholder="as shown on the board", max_length=64, min_width=170)
        version = gr.Textbox(label="Version (optional)", placeholder="2026-11-21", max_length=64, min_width=130)
    organization = gr.Dropdown(
        [], label="Team", info=INFO["organization"], allow_custom_value=any_organization, min_width=170
    )
    with gr.Row():
        kinds = [(label, key) for key, label in KINDS.items()]
        kind = gr.Dropdown(kinds, value="multimodal_llm", label="Kind", min_width=190)
        style = gr.Dropdown([NO_PROMPT, *PROMPT_STYLES], value="zero-shot", label="Prompt style", min_width=190)
    with gr.Accordion("Links and training data (optional)", open=False) as folded:
        code = gr.Textbox(label="Code", placeholder="https://…", max_length=500)
        paper = gr.Textbox(label="Paper", placeholder="https://…", max_length=500)
        model = gr.Textbox(label="Model page", placeholder="https://…", max_length=500)
        training = gr.Textbox(label="Training data", lines=2, max_length=4000)
        overlap = gr.Textbox(label="Known overlap with the benchmark", lines=2, max_length=4000)
    return [name, version, organization, kind, style, code, paper, model, training, overlap], folded


def read_file(path: Path) -> Metadata:
    """Read a ``submission.json``.

    Raises
    ------
    MetadataError
        If the file is too large, is not UTF-8 text, or breaks a rule.
    """
    with path.open("rb") as stream:
        raw = stream.read(MAX_FILE_BYTES + 1)
    try:
        return read_metadata(raw.decode("utf-8"))
    except UnicodeDecodeError:
        fault = {"field": "metadata", "rule": "must be UTF-8 text", "value": ""}
        raise MetadataError([fault]) from None


def values_of(metadata: Metadata) -> tuple[list[str | None], dict[str, Any]]:
    """Return the values of the form's fields, and the further contents of a ``submission.json``."""
    document = metadata.model_dump(exclude_none=True)
    values: list[str | None] = []
    for field in FIELDS:
        value: Any = document
        for step in field.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        values.append(NO_PROMPT if field == "prompt_style" and value is None else value)
    return values, {name: document[name] for name in MORE if name in document}


def read_form(form: Sequence[str | None], more: Mapping[str, Any]) -> Metadata:
    """Return the form's fields as validated metadata.

    Raises
    ------
    MetadataError
        If the metadata break a rule; the error lists every problem.
    """
    values = dict(zip(FIELDS, (value or None for value in form), strict=True))
    style = values["prompt_style"]
    document = {
        "model": {"name": values["model.name"] or "", "version": values["model.version"]},
        "organization": values["organization"] or "",
        "kind": values["kind"],
        "prompt_style": None if style == NO_PROMPT else style,
        "links": {name: values[f"links.{name}"] for name in ("code", "paper", "model")},
        "training_data": values["training_data"],
        "known_overlap": values["known_overlap"],
        **{name: more[name] for name in MORE if name in more},
    }
    return read_metadata(json.dumps(document))


def metadata_view(problem: MetadataError, title: str = "Not sent: correct the description of the model.") -> str:
    """Return the problems of the metadata as HTML, each under the field's label."""
    rows = [
        (FIELDS.get(error["field"], error["field"]), error["rule"], _got(error.get("value", "")))
        for error in problem.errors
    ]
    return draw(PAGE, "metadata", title, rows)


def _got(value: str) -> str:
    """Return a value to repeat in a message; empty if the value is missing."""
    return value if value not in ("''", "None") else ""


LINT_ROWS_SHOWN = 50


def lint_view(report: Lint) -> str:
    """Return the report on a file's problems as HTML; all texts from the file are escaped."""
    ordered = sorted(report.problems, key=lambda p: (p.severity == "warning", p.line is None, p.line))
    return draw(PAGE, "lint", report, ordered, LINT_ROWS_SHOWN, statistics_in_words(report.statistics))


FORMATS = (
    "Formats: JSON lines; for labels with probabilities also CSV; for localizations also CSV, Parquet, CheXlocalize or "
    "COCO JSON. The report appears here."
)
EMPTY = message("info", "No file yet.", FORMATS)
SIGN_IN = sign_in("/submit", "Sign in to check files and send them for your team.")
NO_TEAM, WAITING = draw(PAGE, "no_team"), draw(PAGE, "waiting")
FIRST_FOLDED = list(FIELDS).index("links.code")
FIELD_POSITIONS = {field: i for i, field in enumerate(FIELDS)} | {"model": 0, "links": FIRST_FOLDED}
"""Field of the metadata -> position of the form's field that shows problems of the metadata field."""
# Scrolls to the answer, or opens the page of the submission after a success.
FOLLOW = """() => {
  const answer = document.getElementById('answer');
  const way = answer?.querySelector('a[href^="/submission?"]');
  if (way) location.assign(way.href); else answer?.scrollIntoView({block: 'nearest'});
}"""

REFUSALS = (
    ParseFailed, NotAMemberError, NotPermittedError, TeamNameError, BoardClosedError, KeyReusedError,
    NotAllowedError, UnknownBenchmarkError,
)  # fmt: skip
"""Errors whose texts the page shows."""

log = logging.getLogger(__name__)


def build(services: Services, page: gr.Blocks) -> None:
    """Build the page inside the current `gr.Blocks`."""
    names = services.names
    manifest = "The questions: " + link("/api/v1/benchmarks", "benchmarks and manifests") + "."
    build_header(services, page)
    gr.HTML(opening("/submit", markup=manifest))
    with gr.Row(elem_id="submit"):
        with gr.Column(min_width=320):
            gr.HTML(part("1. The file"))
            benchmark = gr.Dropdown(names, value=names[0], label="Benchmark")
            file = gr.File(
                label="Prediction file", file_count="single", type="filepath", height=96, elem_classes="rv-drop"
            )
            asked = gr.HTML("", elem_id="asked")
            report = gr.HTML(EMPTY, elem_id="report")
            allow_missing = gr.Checkbox(
                label="Score missing predictions as misses (otherwise missing predictions are errors)"
            )
        with gr.Column(min_width=320):
            gr.HTML(part("2. The model"))
            described = gr.File(
                label="Fill the form from a submission.json (optional)",
                file_count="single",
                type="filepath",
                height=96,
                elem_classes="rv-drop",
            )
            filled = gr.HTML("", elem_id="filled")
            fields, folded = build_form(any_organization=services.auth.mode == "local")
            gr.HTML(part("3. Send"))
            balance = gr.HTML("", elem_id="balance")
            send = gr.Button("Send for scoring …", variant="primary", interactive=False, elem_id="send")
            missing = gr.HTML(missing_view(is_clean=False, name=None, organization=None), elem_id="missing")
            answer = gr.HTML("", elem_id="answer", js_on_load=ACTIONS)
    is_clean, more = gr.State(False), gr.State({})
    handlers = SubmitHandlers(services)
    name: Any = fields[0]
    organization: Any = fields[2]
    upload = [file, benchmark, allow_missing]
    needed = [is_clean, name, organization, benchmark]
    page.load(handlers.open, None, [report, organization, balance], **QUIET)
    gr.on([page.load, benchmark.change], handlers.asked, benchmark, asked, **QUIET)
    checking = [file.change, benchmark.change, allow_missing.change]
    gr.on(checking, handlers.check, upload, [report, is_clean], **PRIVATE)
    gr.on(checking, lambda: "", None, answer, **QUIET)
    gr.on([benchmark.change, organization.change], handlers.balance, [benchmark, organization], balance, **QUIET)
    described.change(handlers.fill, [described, *fields], [filled, more, *fields], **QUIET)
    filling = [is_clean.change, name.change, organization.change, benchmark.change]
    gr.on(filling, handlers.ready, needed, [send, missing, answer], trigger_mode="always_last", **QUIET)
    everything = [*upload, more, *fields]
    send.click(handlers.ask, everything, [answer, folded, *fields], **PRIVATE)
    answer.click(handlers.answer, everything, [answer, balance], **PRIVATE)
    answer.change(None, js=FOLLOW, **PRIVATE)


def missing_view(*, is_clean: bool, name: str | None, organization: str | None) -> str:
    """Return what is still missing for a submission; empty if the submission is complete."""
    needs = [
        name_of_part
        for is_present, name_of_part in (
            (is_clean, "a file without errors"),
            (bool((name or "").strip()), "the model’s name"),
            (bool(organization), "the team"),
        )
        if not is_present
    ]
    return note(f"Still needed: {', '.join(needs)}.") if needs else ""


def faults_at_fields(problem: MetadataError | None) -> list[Any]:
    """Return updates of the form: the optional fields opened if needed, then each field's problem or hint."""
    rules: dict[int, str] = {}
    for fault in [] if problem is None else problem.errors:
        rules.setdefault(_position(fault["field"]), fault["rule"])
    unfolded = gr.update(open=True) if any(i >= FIRST_FOLDED for i in rules) else gr.skip()
    return [unfolded] + [
        gr.update(info=rules.get(i, INFO.get(field, "")), elem_classes=["rv-fault"] if i in rules else [])
        for i, field in enumerate(FIELDS)
    ]


def _position(field: str) -> int:
    """Return the position of the form's field that shows problems of a metadata field; 0 without such a field."""
    return FIELD_POSITIONS.get(field, FIELD_POSITIONS.get(field.partition(".")[0], 0))


def teams_of(actor: Actor | None) -> list[Team]:
    """Return the teams for which `actor` may submit."""
    if actor is None:
        return []
    return [m.team for m in actor.memberships if actor.team(m.team.id) is not None]


def _account(actor: Actor | None) -> str:
    """Return the notice for people who cannot submit; empty for others."""
    if actor is None:
        return SIGN_IN
    if teams_of(actor):
        return ""
    return WAITING if any(m.team.waiting_since is not None for m in actor.memberships) else NO_TEAM


class SubmitHandlers(Handlers):
    """Handlers of the page's events."""

    def open(self, request: gr.Request) -> tuple[Any, ...]:
        """Return the user's teams; a single team is selected."""
        actor = self.services.actor(request)
        teams = [team.name for team in teams_of(actor)]
        only = teams[0] if len(teams) == 1 else None
        balance, _ = self._balance(actor, self.services.names[0], only)
        return _account(actor) or EMPTY, gr.update(choices=teams, value=only), balance

    def asked(self, benchmark: str) -> str:
        """Return the findings that a benchmark asks if these are not all of the download's; empty otherwise."""
        published = self.services.catalogue.current(benchmark)
        if not published.part:
            return ""
        names = ", ".join(published.findings)
        return note(f"Asks {published.part}: {names}. Answers on the other findings are left out and counted.")

    def check(self, request: gr.Request, path: str | None, benchmark: str, allow_missing: bool) -> tuple[str, bool]:
        """Check the dropped file; return the report as HTML, and whether the file can be sent."""
        actor = self.services.actor(request)
        if actor is None:
            return SIGN_IN, False
        if path is None:
            return _account(actor) or EMPTY, False
        try:
            report = self.services.intake.lint(Path(path), benchmark, name=path, allow_missing=allow_missing)
        except (ParseFailed, UnknownBenchmarkError) as error:
            return message("bad", "The file could not be checked.", str(error)), False
        except Exception:
            log.exception("linting failed")
            return _our_error("The file could not be checked."), False
        return lint_view(report), report.ok

    def ready(
        self, request: gr.Request, is_clean: bool, name: str | None, organization: str | None, benchmark: str
    ) -> tuple[Any, ...]:
        """Enable the button if nothing is missing, and remove a confirmation question about earlier values."""
        missing = missing_view(is_clean=is_clean, name=name, organization=organization)
        _, may_send = self._balance(self.services.actor(request), benchmark, organization)
        return gr.update(interactive=not missing and may_send), missing, ""

    def fill(self, request: gr.Request, path: str | None, *form: str | None) -> tuple[Any, ...]:
        """Fill the form from a ``submission.json``; a team to which the user does not belong is not selected."""
        keep = [gr.skip()] * len(form)
        if path is None:
            return "", {}, *keep
        try:
            values, more = values_of(read_file(Path(path)))
        except MetadataError as error:
            return metadata_view(error, "This submission.json has errors."), {}, *keep
        except OSError:
            log.exception("a submission.json could not be read")
            return _our_error("The file could not be read."), {}, *keep
        return self._filled(values, more, self.services.actor(request))

    def _filled(self, values: list[str | None], more: dict[str, Any], actor: Actor | None) -> tuple[Any, ...]:
        teams = {team_key(team.name): team.name for team in teams_of(actor)}
        name = values[2] or ""
        text = "Form filled from the file."
        if more:
            text += f" Also sent: {', '.join(more)}."
        if team_key(name) in teams:
            values[2] = teams[team_key(name)]
        elif self.services.auth.mode != "local":
            values[2] = None
            text += f" You are not a member of the file's team {name}. Choose another team."
        return message("good", text), more, *values

    def balance(self, request: gr.Request, benchmark: str, organization: str | None) -> str:
        """Return the team's remaining budget."""
        return self._balance(self.services.actor(request), benchmark, organization)[0]

    def _balance(self, actor: Actor | None, benchmark: str, organization: str | None) -> tuple[str, bool]:
        """Return the team's remaining budget as HTML, and whether the team may send one more file."""
        team = next((t for t in teams_of(actor) if team_key(t.name) == team_key(organization or "")), None)
        if team is None:
            return "", True  # an attempt to send reports the problem
        try:
            version = self.services.catalogue.current(benchmark).version
            with self.services.store.read() as connection:
                row = boards.board(connection, benchmark)
                times = self.services.settings.of(benchmark).round
                if row is not None and (notice := board_notes.closed(*boards.shown_state(connection, row, times))):
                    return notice, False
                balance = quota.balance(connection, team.id, benchmark, version, self.services.settings)
            return balance_view(balance, team.name), balance.may_send
        except UnknownBenchmarkError:
            return "", True

    def ask(
        self,
        request: gr.Request,
        path: str | None,
        benchmark: str,
        allow_missing: bool,
        more: dict[str, Any] | None,
        *form: str | None,
    ) -> tuple[Any, ...]:
        """Ask for confirmation and name the cost, or show problems at their fields."""
        actor = self.services.actor(request)
        no_problems = faults_at_fields(None)
        if actor is None:
            return SIGN_IN, *no_problems
        try:
            metadata = read_form(form, more or {})
            version = self.services.catalogue.current(benchmark).version
        except MetadataError as error:
            return metadata_view(error), *faults_at_fields(error)
        except UnknownBenchmarkError as error:
            return message("bad", "Not sent.", str(error)), *no_problems
        balance, _ = self._balance(actor, benchmark, metadata.organization)
        values = (metadata.model.name, metadata.organization, f"{benchmark} {version}", Markup(balance))
        return draw(PAGE, "confirm", *values), *no_problems

    def answer(
        self, request: gr.Request, event: gr.EventData, path: str | None, benchmark: str, *rest: Any
    ) -> tuple[Any, Any]:
        """Send the file if the user confirmed."""
        if Click.of(event).act != "send":
            return "", gr.skip()
        organization = rest[2 + list(FIELDS).index("organization")]
        answer = self.send(request, path, benchmark, *rest)
        return answer, self.balance(request, benchmark, organization)

    def send(
        self,
        request: gr.Request,
        path: str | None,
        benchmark: str,
        allow_missing: bool,
        more: dict[str, Any] | None,
        *form: str | None,
    ) -> str:
        """Queue the file; the answer links to the page of the submission."""
        actor = self.services.actor(request)
        if actor is None:
            return SIGN_IN
        if path is None:
            return message("bad", "Choose a file to send.")
        try:
            metadata = read_form(form, more or {})
            with Path(path).open("rb") as stream:
                outcome = self.services.intake.submit(
                    stream, benchmark, metadata, actor=actor, filename=path, allow_missing=allow_missing
                )
        except MetadataError as error:
            return metadata_view(error)
        except quota.QuotaExceededError as error:
            return message("bad", "Not sent.", error.balance.why)
        except REFUSALS as error:
            return message("bad", "Not sent.", str(error))
        except Exception:
            log.exception("sending failed")
            return _our_error("The file could not be sent.")
        if outcome.submission is None:
            return message("bad", "The file was not queued.", "See the lint report.")
        return draw(PAGE, "sent", outcome.submission, outcome.is_new)


def _our_error(title: str) -> str:
    return message("bad", title, f"{OUR_ERROR} Try again.")
