"""Sending a file: choose, drop, read the linter's report, say what made it, be asked once more, send.

What was sent has a page of its own (:mod:`.submission`), to which a success leads. The form about the model can be
filled from a ``submission.json``. What such a file says beyond the fields of the form (parameters, thresholds, the
grid, a contact) is kept and sent along; the page names it.
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

MORE = ("parameters", "grid", "thresholds", "contact")
"""What the file may hold besides; it is sent along."""

NO_PROMPT = "none (not prompted)"
MAX_FILE_BYTES = 64 * 1024
INFO = {"organization": "one of your teams"}
"""Field -> what is said at it, unless something is wrong with it."""


def build_form(*, any_organization: bool) -> tuple[list[gr.components.Component], gr.Accordion]:
    """The fields, in the order of `FIELDS`, and what the optional ones are folded in.

    Parameters
    ----------
    any_organization : whether a name may be typed that is not one of the listed teams (the single user of local mode)
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
    """A dropped ``submission.json``.

    Raises
    ------
    MetadataError
        If it is too large, is not UTF-8 text, or breaks a rule.
    """
    with path.open("rb") as stream:
        raw = stream.read(MAX_FILE_BYTES + 1)
    try:
        return read_metadata(raw.decode("utf-8"))
    except UnicodeDecodeError:
        fault = {"field": "metadata", "rule": "must be UTF-8 text", "value": ""}
        raise MetadataError([fault]) from None


def values_of(metadata: Metadata) -> tuple[list[str | None], dict[str, Any]]:
    """The values of the form's fields, and what the file holds besides."""
    document = metadata.model_dump(exclude_none=True)
    values: list[str | None] = []
    for field in FIELDS:
        value: Any = document
        for step in field.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        values.append(NO_PROMPT if field == "prompt_style" and value is None else value)
    return values, {name: document[name] for name in MORE if name in document}


def read_form(form: Sequence[str | None], more: Mapping[str, Any]) -> Metadata:
    """The form's fields as metadata, checked.

    Raises
    ------
    MetadataError
        With every fault found.
    """
    given = dict(zip(FIELDS, (value or None for value in form), strict=True))
    style = given["prompt_style"]
    document = {
        "model": {"name": given["model.name"] or "", "version": given["model.version"]},
        "organization": given["organization"] or "",
        "kind": given["kind"],
        "prompt_style": None if style == NO_PROMPT else style,
        "links": {name: given[f"links.{name}"] for name in ("code", "paper", "model")},
        "training_data": given["training_data"],
        "known_overlap": given["known_overlap"],
        **{name: more[name] for name in MORE if name in more},
    }
    return read_metadata(json.dumps(document))


def metadata_view(problem: MetadataError, title: str = "Not sent: something about the model is not right.") -> str:
    """Every fault of the metadata, by the names that the form's labels have."""
    faults = [
        (FIELDS.get(error["field"], error["field"]), error["rule"], _got(error.get("value", "")))
        for error in problem.errors
    ]
    return draw(PAGE, "metadata", title, faults)


def _got(value: str) -> str:
    """A value as it is repeated; nothing of one that was left out."""
    return value if value not in ("''", "None") else ""


LINT_ROWS_SHOWN = 50


def lint_view(report: Lint) -> str:
    """A lint report; every text of the file is escaped."""
    ordered = sorted(report.problems, key=lambda p: (p.severity == "warning", p.line is None, p.line))
    return draw(PAGE, "lint", report, ordered, LINT_ROWS_SHOWN, statistics_in_words(report.statistics))


FORMATS = (
    "JSON lines. Labels with probabilities may also be CSV, and places CSV, Parquet, CheXlocalize or COCO JSON. "
    "What the check finds appears here."
)
EMPTY = message("info", "No file yet.", FORMATS)
SIGN_IN = sign_in("/submit", "Once you have signed in, you can have files checked, and sent for your team.")
NO_TEAM, WAITING = draw(PAGE, "no_team"), draw(PAGE, "waiting")
FIRST_FOLDED = list(FIELDS).index("links.code")
FAULTS_BELONG = {field: i for i, field in enumerate(FIELDS)} | {"model": 0, "links": FIRST_FOLDED}
"""Field of a fault -> the place of the form's field at which it is told."""
# An answer is brought into view; the one of a success leads to the page of the submission.
FOLLOW = """() => {
  const answer = document.getElementById('answer');
  const way = answer?.querySelector('a[href^="/submission?"]');
  if (way) location.assign(way.href); else answer?.scrollIntoView({block: 'nearest'});
}"""

REFUSALS = (
    ParseFailed, NotAMemberError, NotPermittedError, TeamNameError, BoardClosedError, KeyReusedError,
    NotAllowedError, UnknownBenchmarkError,
)  # fmt: skip
"""What may be said of a submission that was not taken: each is a sentence for its sender."""

log = logging.getLogger(__name__)


def build(services: Services, page: gr.Blocks) -> None:
    """Lay out the page inside the present Blocks."""
    names = services.names
    manifest = "What is asked: " + link("/api/v1/benchmarks", "list of benchmarks and manifests") + "."
    build_header(services, page)
    gr.HTML(opening("/submit", markup=manifest))
    with gr.Row(elem_id="submit"):
        with gr.Column(min_width=320):
            gr.HTML(part("1. The file"))
            benchmark = gr.Dropdown(names, value=names[0], label="Benchmark")
            file = gr.File(
                label="Prediction file", file_count="single", type="filepath", height=96, elem_classes="rv-drop"
            )
            report = gr.HTML(EMPTY, elem_id="report")
            allow_missing = gr.Checkbox(label="Score missing predictions as misses (otherwise they are errors)")
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
    chosen = [file, benchmark, allow_missing]
    needed = [is_clean, name, organization, benchmark]
    page.load(handlers.open, None, [report, organization, balance], **QUIET)
    checking = [file.change, benchmark.change, allow_missing.change]
    gr.on(checking, handlers.check, chosen, [report, is_clean], **PRIVATE)
    gr.on(checking, lambda: "", None, answer, **QUIET)
    gr.on([benchmark.change, organization.change], handlers.balance, [benchmark, organization], balance, **QUIET)
    described.change(handlers.fill, [described, *fields], [filled, more, *fields], **QUIET)
    filling = [is_clean.change, name.change, organization.change, benchmark.change]
    gr.on(filling, handlers.ready, needed, [send, missing, answer], trigger_mode="always_last", **QUIET)
    everything = [*chosen, more, *fields]
    send.click(handlers.ask, everything, [answer, folded, *fields], **PRIVATE)
    answer.click(handlers.answer, everything, [answer, balance], **PRIVATE)
    answer.change(None, js=FOLLOW, **PRIVATE)


def missing_view(*, is_clean: bool, name: str | None, organization: str | None) -> str:
    """What a submission still needs before it can be sent; nothing if it has everything."""
    needs = [
        what
        for is_there, what in (
            (is_clean, "a file without errors"),
            (bool((name or "").strip()), "the model’s name"),
            (bool(organization), "the team"),
        )
        if not is_there
    ]
    return note(f"Still needed: {', '.join(needs)}.") if needs else ""


def faults_at_fields(problem: MetadataError | None) -> list[Any]:
    """Whether the optional fields are unfolded, then what is said at every field: its fault, or what it always says."""
    found: dict[int, str] = {}
    for fault in [] if problem is None else problem.errors:
        found.setdefault(_place(fault["field"]), fault["rule"])
    unfolded = gr.update(open=True) if any(i >= FIRST_FOLDED for i in found) else gr.skip()
    return [unfolded] + [
        gr.update(info=found.get(i, INFO.get(field, "")), elem_classes=["rv-fault"] if i in found else [])
        for i, field in enumerate(FIELDS)
    ]


def _place(field: str) -> int:
    """The field of the form at which a fault of the metadata is told; the first one if it has none."""
    return FAULTS_BELONG.get(field, FAULTS_BELONG.get(field.partition(".")[0], 0))


def teams_of(actor: Actor | None) -> list[Team]:
    """The teams for which `actor` may submit."""
    if actor is None:
        return []
    return [m.team for m in actor.memberships if actor.team(m.team.id) is not None]


def _account(actor: Actor | None) -> str:
    """What keeps somebody from submitting, if anything does."""
    if actor is None:
        return SIGN_IN
    if teams_of(actor):
        return ""
    return WAITING if any(one.team.waiting_since is not None for one in actor.memberships) else NO_TEAM


class SubmitHandlers(Handlers):
    """What happens on the page's events; each asks anew who is there."""

    def open(self, request: gr.Request) -> tuple[Any, ...]:
        """Who is signed in, for which organizations; of several none is chosen yet."""
        actor = self.services.actor(request)
        teams = [team.name for team in teams_of(actor)]
        only = teams[0] if len(teams) == 1 else None
        balance, _ = self._balance(actor, self.services.names[0], only)
        return _account(actor) or EMPTY, gr.update(choices=teams, value=only), balance

    def check(self, request: gr.Request, path: str | None, benchmark: str, allow_missing: bool) -> tuple[str, bool]:
        """Lint the dropped file, and whether it may be sent."""
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
            return _our_fault("The file could not be checked."), False
        return lint_view(report), report.ok

    def ready(
        self, request: gr.Request, is_clean: bool, name: str | None, organization: str | None, benchmark: str
    ) -> tuple[Any, ...]:
        """The button opens once nothing is missing; a question asked about other values is taken back."""
        missing = missing_view(is_clean=is_clean, name=name, organization=organization)
        _, may_send = self._balance(self.services.actor(request), benchmark, organization)
        return gr.update(interactive=not missing and may_send), missing, ""

    def fill(self, request: gr.Request, path: str | None, *form: str | None) -> tuple[Any, ...]:
        """Fill the form from a ``submission.json``; an organization that is not one of the actor's is left unchosen."""
        keep = [gr.skip()] * len(form)
        if path is None:
            return "", {}, *keep
        try:
            values, more = values_of(read_file(Path(path)))
        except MetadataError as error:
            return metadata_view(error, "This submission.json was not read."), {}, *keep
        except OSError:
            log.exception("a submission.json could not be read")
            return _our_fault("The file could not be read."), {}, *keep
        return self._filled(values, more, self.services.actor(request))

    def _filled(self, values: list[str | None], more: dict[str, Any], actor: Actor | None) -> tuple[Any, ...]:
        teams = {team_key(team.name): team.name for team in teams_of(actor)}
        wanted = values[2] or ""
        told = "The form is filled from the file."
        if more:
            told += f" Also sent along: {', '.join(more)}."
        if team_key(wanted) in teams:
            values[2] = teams[team_key(wanted)]
        elif self.services.auth.mode != "local":
            values[2] = None
            told += f" Its team, {wanted}, is not one of yours: choose one."
        return message("good", told), more, *values

    def balance(self, request: gr.Request, benchmark: str, organization: str | None) -> str:
        """What is left of the organization's budget."""
        return self._balance(self.services.actor(request), benchmark, organization)[0]

    def _balance(self, actor: Actor | None, benchmark: str, organization: str | None) -> tuple[str, bool]:
        """What is left of the organization's budget, and whether one more may be sent."""
        team = next((t for t in teams_of(actor) if team_key(t.name) == team_key(organization or "")), None)
        if team is None:
            return "", True  # sending says what is wrong
        try:
            version = self.services.catalogue.current(benchmark).version
            policy = self.services.settings.of(benchmark).quota
            with self.services.store.read() as connection:
                row = boards.board(connection, benchmark)
                if row is not None and row.state != "open":
                    return board_notes.closed(row.state, row.why), False
                left = quota.balance(connection, team.id, benchmark, version, policy)
            return balance_view(left, team.name), left.may_send
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
        """Say what would be sent and what it costs, before it is sent; what is wrong, at its field."""
        actor = self.services.actor(request)
        right = faults_at_fields(None)
        if actor is None:
            return SIGN_IN, *right
        try:
            metadata = read_form(form, more or {})
            version = self.services.catalogue.current(benchmark).version
        except MetadataError as error:
            return metadata_view(error), *faults_at_fields(error)
        except UnknownBenchmarkError as error:
            return message("bad", "Not sent.", str(error)), *right
        balance, _ = self._balance(actor, benchmark, metadata.organization)
        shown = (metadata.model.name, metadata.organization, f"{benchmark} {version}", Markup(balance))
        return draw(PAGE, "confirm", *shown), *right

    def answer(
        self, request: gr.Request, event: gr.EventData, path: str | None, benchmark: str, *rest: Any
    ) -> tuple[Any, Any]:
        """What was answered to the question: send it, or not."""
        if Click.of(event).act != "send":
            return "", gr.skip()
        organization = rest[2 + list(FIELDS).index("organization")]
        shown = self.send(request, path, benchmark, *rest)
        return shown, self.balance(request, benchmark, organization)

    def send(
        self,
        request: gr.Request,
        path: str | None,
        benchmark: str,
        allow_missing: bool,
        more: dict[str, Any] | None,
        *form: str | None,
    ) -> str:
        """Queue the file; the answer leads to the page of the submission."""
        actor = self.services.actor(request)
        if actor is None:
            return SIGN_IN
        if path is None:
            return message("bad", "There is no file to send.")
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
            return _our_fault("The file could not be sent.")
        if outcome.submission is None:
            return message("bad", "The file was not queued.", "See what the check found.")
        return draw(PAGE, "sent", outcome.submission, outcome.is_new)


def _our_fault(what: str) -> str:
    return message("bad", what, f"{OUR_ERROR} Try again.")
