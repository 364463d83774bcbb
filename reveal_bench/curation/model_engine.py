"""Derive labels from reports, and from readers' notes, by asking a model.

Conventions
-----------
An answer that cannot be read is refused, and the model is asked again with the reason; after the last attempt the
report is quarantined with all of the model's answers. Nothing is guessed, and no report is skipped. Reports for which a
request failed are quarantined as well, but counted separately, because a repeated request may succeed.

The client stores completions, so an interrupted run repeats only the requests that were under way. The results depend
only on the text of the completions, not on when or where they were made. Source: paper 004 (REVEAL-CXR), section 2.1
for reports and 2.2 for notes.
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
    Prompt,
    UnreadableAnswerError,
    findings_prompt,
    labelled_findings_prompt,
    labels_prompt,
    note_prompt,
)
from reveal_bench.curation.report_tables import Quarantined, StudyReport
from reveal_bench.curation.tables import Labels, Revision, Suggestion, Vote, labels_of
from reveal_bench.models.model_client import Completion, Dialogue, ModelClient, ModelRequest, RequestFailure

T = TypeVar("T")


class NoAnswer(Exception):  # noqa: N818 - this exception ends a dialogue, not the run
    """No readable answer to a prompt."""


class RetryingClient:
    """Asks a model up to `more_tries` more times for a readable answer; counts refused answers and failed requests."""

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
        """Return everything that the results depend on besides the endpoint, as JSON."""
        own = {"task": self.task, "prompts": self.prompts, "more_tries": self.more_tries}
        return {**self.client.settings.document(), **own}

    def counts(self) -> dict[str, Any]:
        """Return the refused answers, and the answers, tokens and costs of :meth:`ModelClient.counts`.

        `unanswered` counts the reports or notes without a result because a request failed. Failed requests are not
        stored, so that repeating the task sends them again.
        """
        return {"refused_answers": self.n_refused, "unanswered": self.n_unanswered, **self.client.counts()}

    def run_dialogues(self, dialogues: Sequence[Dialogue[T]], progress: Progress | None) -> Iterator[T]:
        """Yield the result of each dialogue, in order of completion; `progress` is called with (done, all)."""
        for n_done, outcome in enumerate(self.client.run(dialogues), start=1):
            if progress is not None:
                progress(n_done, len(dialogues))
            yield outcome

    def read(self, prompt: Prompt[T], replies: list[str]) -> Generator[ModelRequest, Completion | RequestFailure, T]:
        """Send `prompt` and return the parsed answer; every answer of the model is appended to `replies`.

        Raises
        ------
        NoAnswer
            If no answer can be read.
        """
        for n_before in range(self.more_tries + 1):
            answer = yield prompt.request
            if isinstance(answer, RequestFailure):
                self.n_unanswered += 1
                raise NoAnswer(f"the request {prompt.request.name!r} failed and can be repeated: {answer.reason}")
            replies.append(answer.refusal or answer.text)
            try:
                if answer.fault:
                    raise UnreadableAnswerError(answer.fault)
                return prompt.read(answer.text)
            except UnreadableAnswerError as error:
                self.n_refused += 1
                if n_before == self.more_tries:
                    tries = f"{n_before + 1} answers" if n_before else "the answer"
                    raise NoAnswer(f"{tries} to {prompt.request.name!r} refused; last reason: {error}") from None
                prompt = prompt.again(answer.text, str(error))
        raise AssertionError("unreachable")


class ModelEngine(RetryingClient):
    """Extracts labels from reports with a model; an :class:`~reveal_bench.curation.report_tables.ReportEngine`.

    Parameters
    ----------
    client : asks the model
    calls : "two" asks for a table of findings and then for their labels, as paper 004 did; "one" asks for both at once,
        without sides and codes
    more_tries : further attempts after an answer that cannot be read
    """

    def __init__(self, client: ModelClient, calls: Literal["two", "one"] = "two", *, more_tries: int = 2) -> None:
        if calls not in ("two", "one"):
            raise ArgumentError("calls", 'must be "two" or "one"', repr(calls))
        super().__init__(client, f"calls:{calls}", more_tries)
        self.calls = calls

    def run(
        self, reports: Iterable[StudyReport], scratch: Path | None = None, progress: Progress | None = None
    ) -> Iterator[Suggestion | Quarantined]:
        """Yield one answer per report, in order of completion; `scratch` is unused: the client stores completions.

        Raises
        ------
        RunStoppedError
            If the endpoint does not answer; earlier completions are kept.
        """
        return self.run_dialogues([self._dialogue(report) for report in reports], progress)

    def _dialogue(self, report: StudyReport) -> Dialogue[Suggestion | Quarantined]:
        replies: list[str] = []
        ids, engine = (report.study_id, report.patient_id), self.signature
        try:
            if self.calls == "one":
                findings = yield from self.read(labelled_findings_prompt(report.text), replies)
            else:
                findings = yield from self.read(findings_prompt(report.text), replies)
                if findings:
                    findings = yield from self.read(labels_prompt(findings), replies)
        except NoAnswer as error:
            return Quarantined(*ids, str(error), engine, as_one_text(replies))
        return Suggestion(*ids, findings, labels_of(findings), "ok", engine)


@dataclass(frozen=True, slots=True)
class UnreadNote:
    """A reader's note without a readable answer of the model; `answer` is a JSON list of all the model's answers."""

    study_id: str
    reader: str
    reason: str
    answer: str


class ModelReviser(RetryingClient):
    """Derives labels from readers' notes with a model; a :class:`~reveal_bench.curation.consensus.Reviser`.

    Notes that do not mention labels, and notes without a readable answer, have no labels and the source "nothing".
    Notes without a readable answer are also in `unread`.
    """

    def __init__(self, client: ModelClient) -> None:
        super().__init__(client, "notes")
        self.unread: list[UnreadNote] = []

    def __call__(self, votes: Sequence[tuple[Vote, Labels]]) -> Iterator[Revision]:
        """Yield one revision per (vote, suggested labels), in order of completion; blank notes are not sent.

        Raises
        ------
        RunStoppedError
            If the endpoint does not answer; earlier completions are kept.
        """
        self.unread = []
        for revision, unread in self.client.run(self._dialogue(vote, suggested) for vote, suggested in votes):
            if unread is not None:
                self.unread.append(unread)
                self.unread.sort(key=lambda one: (one.study_id, one.reader))
            yield revision

    def counts(self) -> dict[str, Any]:
        """Return the counts of every task, and the number of unread notes."""
        return {"unread_notes": len(self.unread), **super().counts()}

    def _dialogue(self, vote: Vote, suggested: Labels) -> Dialogue[tuple[Revision, UnreadNote | None]]:
        replies: list[str] = []
        labels, unread = None, None
        if vote.comment.strip():
            try:
                labels = yield from self.read(note_prompt(suggested, vote.answer, vote.comment), replies)
            except NoAnswer as error:
                unread = UnreadNote(vote.study_id, vote.reader, str(error), as_one_text(replies))
        source = "nothing" if labels is None else "model"
        return Revision(vote.study_id, vote.reader, labels, source), unread


def as_one_text(replies: Sequence[str]) -> str:
    """Return all answers of a model as a JSON list; half a surrogate pair is written as an escape."""
    text = json.dumps(list(replies), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()
