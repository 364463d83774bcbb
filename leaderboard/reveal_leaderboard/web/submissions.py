"""Check an uploaded prediction file and queue it as a submission, for the API and the page.

Conventions
-----------
A confined child process lints the file against the public manifest before anything is stored. A file is not stored if
it has errors or cannot be sent now. The child turns a clean file into arrays, which are stored with the file; workers
score the arrays and never read the file again. File and arrays are stored before the submission is recorded, so a
submission never refers to missing data. The linter has no references, so its report reveals nothing about them. The
right to submit for an organization is checked here and nowhere else.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from reveal_bench.evaluation.score import UNKNOWN_KEYS, split_hint
from reveal_bench.kinds import KINDS
from reveal_leaderboard.accounts.accounts import Accounts
from reveal_leaderboard.accounts.people import Actor, Team
from reveal_leaderboard.boards.catalogue import Catalogue, Published
from reveal_leaderboard.custody import Custody, Lint, Parsed
from reveal_leaderboard.store.blobs import Blobs
from reveal_leaderboard.store.metadata import Metadata, MetadataError
from reveal_leaderboard.store.store import NewSubmission, OtherThresholdsError, Store, Submission

log = logging.getLogger(__name__)


class NotAMemberError(ValueError):
    """The sender may not submit for the organization in the metadata."""


@dataclass(frozen=True)
class UploadResult:
    """Result of an upload: its lint report and, for a file without errors, the submission and whether it is new."""

    report: Lint
    submission: Submission | None = None
    is_new: bool = False


class Intake:
    """Lints, stores and queues uploads to the benchmarks of `catalogue`; `on_lint` is called for every report."""

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        catalogue: Catalogue,
        custody: Custody,
        accounts: Accounts,
        on_lint: Callable[[str, bool], object] | None = None,
    ) -> None:
        self.store, self.blobs, self.catalogue, self.custody, self.accounts = store, blobs, catalogue, custody, accounts
        self._on_lint = on_lint

    def lint(self, path: Path, benchmark: str, *, name: str, allow_missing: bool) -> Lint:
        """Return the lint report of a file; nothing is stored.

        Raises
        ------
        UnknownBenchmarkError
            If the benchmark is not served.
        ParseFailed
            If reading the file took too much memory or time.
        """
        published = self.catalogue.current(benchmark)
        return self._parse(path, published, name=name, allow_missing=allow_missing).report

    def _parse(
        self, path: Path, published: Published, *, name: str, allow_missing: bool, canonical: Path | None = None
    ) -> Parsed:
        parsed = self.custody.parse(
            path, published.manifest, name=display_name(name), allow_missing=allow_missing, canonical=canonical
        )
        if self._on_lint is not None:
            self._on_lint(published.name, parsed.report.ok)
        return parsed.model_copy(update={"report": _with_splits(parsed.report, published)})

    def submit(
        self,
        stream: BinaryIO,
        benchmark: str,
        metadata: Metadata,
        *,
        actor: Actor,
        filename: str,
        allow_missing: bool,
        idempotency_key: str | None = None,
    ) -> UploadResult:
        """Receive, lint and queue a file.

        Raises
        ------
        UnknownBenchmarkError
            If the benchmark is not served.
        NotAMemberError
            If the actor may not submit for the organization in the metadata.
        MetadataError
            If the metadata name a grid other than the board's or labels that are not on the board, or if the same file
            was sent before under this name with other thresholds.
        ParseFailed
            If reading the file took too much memory or time.
        KeyReusedError, QuotaExceededError, BoardClosedError, NotAllowedError
            If :meth:`reveal_leaderboard.store.store.Store.add_submission` raises them.
        """
        published = self.catalogue.current(benchmark)
        team = self.team_of(actor, metadata.organization)
        if KINDS[published.kind].questions.uses_grid:
            metadata.check_grid(published.manifest.grid)
        metadata.check_labels(published.findings)
        facts = {"benchmark": published.name, "version": published.version}
        with self.blobs.receive(stream) as incoming, tempfile.TemporaryDirectory() as scratch:
            canonical = Path(scratch) / "canonical.npz"
            parsed = self._parse(
                incoming.path, published, name=filename, allow_missing=allow_missing, canonical=canonical
            )
            report = parsed.report
            if not report.ok:
                log.info("refused at intake: %d errors, sha256 %s", report.n_errors, incoming.sha256, extra=facts)
                return UploadResult(report)
            new = NewSubmission(
                benchmark=published.name,
                version=published.version,
                split=published.split,
                team_id=team.id,
                user_id=actor.user.id,
                model_name=metadata.model.name,
                kind=metadata.kind,
                prompt_style=metadata.prompt_style,
                metadata=metadata.model_dump(exclude_none=True),
                filename=display_name(filename),
                sha256=incoming.sha256,
                size=incoming.size,
                allow_missing=allow_missing,
                idempotency_key=idempotency_key,
                stamp=self.custody.stamp(published.manifest),
                signs=parsed.signs,
            )
            try:
                self.store.check_sending(new)  # before anything is stored
                self.blobs.keep(incoming)
                new = replace(new, canonical=self.blobs.store(canonical))
                submission, is_new = self.store.add_submission(new, who=actor.name)
            except OtherThresholdsError:
                rule = "must be unchanged, because this file was sent before under this model name: use another name"
                fault = {"field": "thresholds", "rule": rule, "value": str(metadata.thresholds)[:80]}
                raise MetadataError([fault]) from None
        log.info("submission %s was %s", submission.id, "queued" if is_new else "there already", extra=facts)
        return UploadResult(report, submission, is_new)

    def team_of(self, actor: Actor, organization: str) -> Team:
        """Return the actor's team named `organization`.

        Raises
        ------
        NotAMemberError
            If the actor may not submit for it.
        """
        team = self.accounts.team_to_submit_for(actor, organization)
        if team is None:
            raise NotAMemberError(f"You cannot submit for {organization!r}: none of your teams has that name.")
        return team


def _with_splits(report: Lint, published: Published) -> Lint:
    """Return the report with the names of the splits to which unknown ids belong."""
    if not any(problem.rule in UNKNOWN_KEYS for problem in report.problems):
        return report
    home = published.ids_of_other_splits
    hints = (split_hint(one.rule, one.value, home) or one.hint for one in report.problems)
    problems = [one.model_copy(update={"hint": hint}) for one, hint in zip(report.problems, hints, strict=True)]
    return report.model_copy(update={"problems": problems})


def display_name(filename: str) -> str:
    """Return the last part of a client's file name in printable characters, cut to 200."""
    last = filename.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c for c in last if c.isprintable())[:200] or "upload"
