"""Labels of reports, and of readers' notes, from a model that is asked.

Conventions
-----------
An answer that cannot be read is refused, and the model is told why and asked again; after the last time the report is
quarantined with everything that the model said. It is never guessed, and no report is left out. So is a report of
which a question was not answered at all; those are counted apart, since asking again may be all it takes.

Completions are stored by the client, so an interrupted run asks again only what was under way. The results depend on
the completions alone, not on when or from where they came. Source: paper 004 (REVEAL-CXR), section 2.1, and
2.2 for the notes.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from reveal_bench.arguments import ArgumentError
from reveal_bench.curation.folder import Progress
from reveal_bench.curation.report_prompts import (
    PROMPT_VERSION,
    AnswerError,
    Prompt,
    findings_prompt,
    labelled_findings_prompt,
    labels_prompt,
    note_prompt,
)
from reveal_bench.curation.report_tables import Quarantined, Report
from reveal_bench.curation.tables import Labels, Revision, Suggestion, Vote, labels_of
from reveal_bench.models.model_client import Completion, Dialogue, ModelClient, ModelRequest, RequestFailure

T = TypeVar("T")


class NoAnswer(Exception):  # noqa: N818 - it ends a dialogue, not the run
    """A question has no answer that can be read."""


class RetryingClient:
    """Asks until an answer can be read, `more_tries` times more at most, and counts what is refused or not answered."""

    prompts: ClassVar[int] = PROMPT_VERSION

    def __init__(self, client: ModelClient, task: str, more_tries: int = 2) -> None:
        if more_tries < 0:
            raise ArgumentError("more_tries", "must be at least 0", more_tries)
        self.client, self.task, self.more_tries = client, task, more_tries
        self.n_refused = self.n_unanswered = 0

    @property
    def signature(self) -> str:
        """Model, task, version of the prompts, and a digest of all settings."""
        digest = sha256(json.dumps(self.settings(), sort_keys=True).encode()).hexdigest()[:8]
        return f"{self.client.settings.model}|{self.task}|prompts:{self.prompts}|settings:{digest}"

    def settings(self) -> dict[str, Any]:
        """Everything that the results depend on besides the endpoint, as JSON."""
        own = {"task": self.task, "prompts": self.prompts, "more_tries": self.more_tries}
        return {**self.client.settings.document(), **own}

    def counts(self) -> dict[str, Any]:
        """Refused answers, and the answers, tokens and costs of :meth:`ModelClient.counts`.

        `unanswered` are the reports or notes without a result because a question had no answer; neither is
        kept, so that the same task, done anew, asks them again.
        """
        return {"refused_answers": self.n_refused, "unanswered": self.n_unanswered, **self.client.counts()}

    def run_dialogues(self, dialogues: Sequence[Dialogue[T]], progress: Progress | None) -> Iterator[T]:
        """What each dialogue comes to, as they come; `progress` is called with (done, all)."""
        for n_done, outcome in enumerate(self.client.run(dialogues), start=1):
            if progress is not None:
                progress(n_done, len(dialogues))
            yield outcome

    def read(self, prompt: Prompt[T], said: list[str]) -> Generator[ModelRequest, Completion | RequestFailure, T]:
        """Part of a dialogue: what the answer to `prompt` says; everything that the model says goes to `said`.

        Raises
        ------
        NoAnswer
            If there is none that can be read.
        """
        for n_before in range(self.more_tries + 1):
            answer = yield prompt.request
            if isinstance(answer, RequestFailure):
                self.n_unanswered += 1
                raise NoAnswer(f"no answer to {prompt.request.name!r}, which can be asked again: {answer.reason}")
            said.append(answer.refusal or answer.text)
            try:
                if answer.fault:
                    raise AnswerError(answer.fault)
                return prompt.read(answer.text)
            except AnswerError as error:
                self.n_refused += 1
                if n_before == self.more_tries:
                    tries = f"{n_before + 1} answers" if n_before else "the answer"
                    raise NoAnswer(f"{tries} to {prompt.request.name!r} refused, the last: {error}") from None
                prompt = prompt.again(answer.text, str(error))
        raise AssertionError("unreachable")


class ModelEngine(RetryingClient):
    """Reads labels out of reports with a model; an :class:`~reveal_bench.curation.report_tables.Engine`.

    Parameters
    ----------
    client : asks the model
    calls : "two" asks for a table of findings and then for their labels, as paper 004 did; "one" for both at once,
        without sides and codes
    more_tries : how often a question is put again after an answer that cannot be read
    """

    def __init__(self, client: ModelClient, calls: Literal["two", "one"] = "two", *, more_tries: int = 2) -> None:
        if calls not in ("two", "one"):
            raise ArgumentError("calls", 'must be "two" or "one"', repr(calls))
        super().__init__(client, f"calls:{calls}", more_tries)
        self.calls = calls

    def run(
        self, reports: Iterable[Report], scratch: Path | None = None, progress: Progress | None = None
    ) -> Iterator[Suggestion | Quarantined]:
        """One answer per report, as they come; `scratch` is not used, the answers are in the client's cache.

        Raises
        ------
        RunStoppedError
            If the endpoint does not answer; the answers so far are kept.
        """
        return self.run_dialogues([self._dialogue(report) for report in reports], progress)

    def _dialogue(self, report: Report) -> Dialogue[Suggestion | Quarantined]:
        said: list[str] = []
        ids, engine = (report.study_id, report.patient_id), self.signature
        try:
            if self.calls == "one":
                findings = yield from self.read(labelled_findings_prompt(report.text), said)
            else:
                findings = yield from self.read(findings_prompt(report.text), said)
                if findings:
                    findings = yield from self.read(labels_prompt(findings), said)
        except NoAnswer as error:
            return Quarantined(*ids, str(error), engine, as_one_text(said))
        return Suggestion(*ids, findings, labels_of(findings), "ok", engine)


@dataclass(frozen=True, slots=True)
class UnreadNote:
    """A reader's note that the model gave no readable answer to; `answer` is a JSON list of all that it said."""

    study_id: str
    reader: str
    reason: str
    answer: str


class ModelReviser(RetryingClient):
    """Reads labels out of readers' notes with a model; a :class:`~reveal_bench.curation.consensus.Reviser`.

    A note that says nothing of labels, and one without a readable answer, has no labels, and its source is
    "nothing"; the latter are in `unread`, too.
    """

    def __init__(self, client: ModelClient) -> None:
        super().__init__(client, "notes")
        self.unread: list[UnreadNote] = []

    def __call__(self, votes: Sequence[tuple[Vote, Labels]]) -> Iterator[Revision]:
        """One revision per (vote, suggested labels), as they come; blank notes are not asked about.

        Raises
        ------
        RunStoppedError
            If the endpoint does not answer; the answers so far are kept.
        """
        self.unread = []
        for revision, unread in self.client.run(self._dialogue(vote, suggested) for vote, suggested in votes):
            if unread is not None:
                self.unread.append(unread)
                self.unread.sort(key=lambda one: (one.study_id, one.reader))
            yield revision

    def counts(self) -> dict[str, Any]:
        """The counts of every task, and the number of unread notes."""
        return {"unread_notes": len(self.unread), **super().counts()}

    def _dialogue(self, vote: Vote, suggested: Labels) -> Dialogue[tuple[Revision, UnreadNote | None]]:
        said: list[str] = []
        labels, unread = None, None
        if vote.comment.strip():
            try:
                labels = yield from self.read(note_prompt(suggested, vote.answer, vote.comment), said)
            except NoAnswer as error:
                unread = UnreadNote(vote.study_id, vote.reader, str(error), as_one_text(said))
        source = "nothing" if labels is None else "model"
        return Revision(vote.study_id, vote.reader, labels, source), unread


def as_one_text(said: Sequence[str]) -> str:
    """Everything that a model said, as a JSON list; half a surrogate pair stands there as an escape."""
    text = json.dumps(list(said), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()
