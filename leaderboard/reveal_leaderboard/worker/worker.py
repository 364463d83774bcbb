"""The worker, which scores submissions; only this process knows where the holdouts are.

Conventions
-----------
The worker itself reads neither uploads nor references. It passes predictions and references to the score child
(:mod:`reveal_leaderboard.custody`), and writes released scores to the database. The predictions were parsed and stored
when the file was sent. The file is parsed again only to be scored against another version, or if the stored predictions
are missing, damaged or in an older format. All validation ends before a reference is opened. After that, public
messages do not depend on an error: an exception becomes a fixed sentence with an incident number, and the details are
written to the vault. Scoring is deterministic, so a submission whose worker was killed is scored again under a new
lease.

Exact scores, details of incidents, the salt of the reference hash and the receipt key are in the *vault* beside the
holdout, a folder that only the worker's user can read. The data folder, which the server shares, contains released
scores only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from reveal_bench.dataset.overlaps import read_cases
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.folder import FolderInfo, read_folder_info, split_shards
from reveal_bench.kinds.parts import Manifest
from reveal_leaderboard.boards.reading import is_complete
from reveal_leaderboard.boards.standings import read_ranking
from reveal_leaderboard.custody import Custody, Lint, Parsed, ParseFailed, ScoreFailed
from reveal_leaderboard.custody.arrays import read_canonical, write_canonical
from reveal_leaderboard.custody.confinement import is_inside, readable_places
from reveal_leaderboard.release import receipts
from reveal_leaderboard.release.exposure import pause_used_up
from reveal_leaderboard.release.outcomes import ScoredOutcome
from reveal_leaderboard.release.release import ReleasedScore, ranking_metric
from reveal_leaderboard.settings import BenchmarkSettings, ReleasePolicy, Settings, SettingsError
from reveal_leaderboard.store import boards
from reveal_leaderboard.store.blobs import BlobDamagedError, Blobs, write_durably
from reveal_leaderboard.store.cases import register_cases
from reveal_leaderboard.store.queue import LEASE_SECONDS, Job, Queue
from reveal_leaderboard.store.ratings import answers_of, ratings_of
from reveal_leaderboard.store.scores import ScoringVerdict, final_share_of, ranked_part
from reveal_leaderboard.store.store import Score, Store, Submission
from reveal_leaderboard.store.submissions import get_known
from reveal_leaderboard.worker.answers import AnswerCount, answers_in_database


class Vault:
    """Folder of exact scores and incidents, mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)

    def write_incident(self, subject: str, details: str) -> str:
        """Store `details` of an incident under a new number, and return the number."""
        number = f"INC-{secrets.token_hex(4).upper()}"
        text = f"{subject}\n{details}"
        write_durably(self.folder / f"{number}.txt", text.encode("utf-8", "backslashreplace"))
        return number

    def make_salt(self) -> None:
        """Create the vault's secret salt if it is missing.

        Without the salt, the public hash of the references cannot confirm guesses of references.
        """
        path = self.folder / "salt"
        if not path.exists():
            write_durably(path, secrets.token_bytes(32))


@dataclass(frozen=True)
class Holdout:
    """The private references of a version of a benchmark."""

    folder: Path
    info: FolderInfo
    vault: Vault
    _manifests: dict[str, Manifest] = field(default_factory=dict, repr=False)

    def manifest(self, split: str) -> Manifest:
        """Return the manifest of `split`, which is read once."""
        if split not in self._manifests:
            self._manifests[split] = KINDS[self.info.kind].questions.read_manifest(self.folder, split)
        return self._manifests[split]


Holdouts = dict[tuple[str, str], Holdout]
"""Mapping from (benchmark, version) to the holdout."""


def open_holdouts(folders: Iterable[tuple[str, Path]], *, shared: Iterable[Path], vault: Path | None) -> Holdouts:
    """Return the holdouts in `folders`, after checking their locations, benchmarks and versions.

    Parameters
    ----------
    folders : (benchmark, folder) pairs, one for each version to score
    shared : folders that the server can read and write
    vault : folder for exact scores; None for `vault` beside each holdout

    Raises
    ------
    ValueError
        If a server could read a holdout or vault, or a holdout is of a different benchmark.
    """
    shared = list(shared)
    holdouts: Holdouts = {}
    for name, folder in folders:
        private = folder.resolve().parent / "vault" if vault is None else vault
        for what, place in (("holdout", folder), ("vault", private)):
            _check_place(what, place, shared)
        info = read_folder_info(folder)
        config = KINDS[info.kind].config
        absent = [split for split in info.splits if not split_shards(folder, config, split)]
        if absent:
            raise ValueError(
                f"the holdout must contain the references of its split {absent[0]!r}, but {folder} does not"
            )
        if info.benchmark != name:
            raise ValueError(
                f"`holdout` {name!r} must be a folder of this benchmark, got a folder of {info.benchmark!r}"
            )
        if (name, info.version) in holdouts:
            raise ValueError(f"`holdout` {name!r} is given twice in version {info.version}")
        holdouts[name, info.version] = Holdout(folder, info, Vault(private))
        holdouts[name, info.version].vault.make_salt()
    return holdouts


def register_patients(store: Store, holdouts: Holdouts, key: bytes) -> None:
    """Record digests of the holdouts' patients under the operator's key; without a key nothing is recorded.

    Only the worker can do this, because public folders do not contain patient ids. Digests without a key would confirm
    guesses.
    """
    for (name, version), holdout in holdouts.items() if key else ():
        if KINDS[holdout.info.kind].scoring.scored_by == "program":
            digests = read_cases(holdout.folder, key).held_out
            with store.write() as connection:
                register_cases(connection, name, version, {"patient": digests["patient"]})


def check_final_shares(store: Store, holdouts: Holdouts) -> None:
    """Check that the settings reserve the same patients for final scores as a version's earlier scores did.

    Raises
    ------
    SettingsError
        If `release.final_share` was changed: scores on other patients cannot be ranked together.
    """
    for name, version in holdouts:
        now = store.settings.of(name).release.final_share
        with store.read() as connection:
            known = final_share_of(connection, name, version)
        if known not in (None, now):
            raise SettingsError(
                f"`release.final_share` of {name} {version} must stay {known}, because its scores use it, got {now}"
            )


def _check_place(what: str, place: Path, shared: Iterable[Path]) -> None:
    for folder in shared:
        if is_inside(place, [folder]) or is_inside(folder, [place]):
            raise ValueError(f"the {what} must be outside the data folder, which the server shares: {place}")
    if is_inside(place, readable_places()):
        raise ValueError(f"the {what} must not be in a folder of programs that the server can read: {place}")


POLL_SECONDS = 0.5
LONGEST_PAUSE = 60.0
BEAT_SECONDS = 15.0
HALF_WRITTEN_SECONDS = 3600.0
USED_UP = "The worker has released all {limit} scores that its settings allow for this version."
INCIDENT = (
    "Scoring failed because of an internal error, which cannot be shown. Please send the incident "
    "number {number} to the operators."
)

Answer = TypeVar("Answer")
log = logging.getLogger(__name__)


class RefusedError(Exception):
    """A job cannot be done because of the submitted file or missing data; the message is public."""


@dataclass(frozen=True)
class GuardedOutcome:
    """An outcome that is written once `admit` returns, and pauses the boards whose meters it brings to "close"."""

    outcome: ScoredOutcome
    settings: Settings
    admit: Callable[[], None]

    def record(
        self, connection: sa.Connection, submission_id: str, version: str, settings: BenchmarkSettings, *, who: str,
        **options: Any,
    ) -> ScoringVerdict:  # fmt: skip
        """Write the outcome in the caller's transaction, as :meth:`ScoredOutcome.record` does."""
        self.admit()
        verdict = self.outcome.record(connection, submission_id, version, settings, who=who, **options)
        benchmark = get_known(connection, submission_id).benchmark
        pause_used_up(connection, benchmark, version, self.settings, who=who)
        return verdict


class Worker:
    """Runs jobs from the queue, one at a time.

    Parameters
    ----------
    store, blobs : database and uploads, shared with the server
    holdouts : holdouts from :func:`reveal_leaderboard.worker.worker.open_holdouts`
    custody : runs the children that parse uploads and score predictions
    settings : settings of all benchmarks
    lease_seconds : seconds after which a silent worker loses its job
    pause_before_finish : seconds to wait before a result is written, for tests that kill the worker
    """

    def __init__(
        self,
        store: Store,
        blobs: Blobs,
        holdouts: Holdouts,
        custody: Custody,
        settings: Settings,
        *,
        lease_seconds: float = LEASE_SECONDS,
        pause_before_finish: float = 0.0,
    ) -> None:
        self.store, self.blobs, self.holdouts, self.custody, self.settings = store, blobs, holdouts, custody, settings
        self.queue = Queue(store.engine, settings)
        self.name = f"{os.uname().nodename}-{os.getpid()}"
        self.lease_seconds = lease_seconds
        self.pause_before_finish = pause_before_finish
        self.stopping = threading.Event()
        self._pause = POLL_SECONDS
        self.answers = {key: AnswerCount(holdout.vault.folder, *key) for key, holdout in holdouts.items()}
        self.signers = {key: receipts.Signer(holdout.vault.folder) for key, holdout in holdouts.items()}
        for holdout in holdouts.values():
            _sweep(holdout.vault.folder)

    def run(self, *, once: bool = False) -> None:
        """Run jobs until :attr:`stopping` is set or, with `once`, the queue is empty.

        Raises
        ------
        CountDamagedError
            If the vault's count of a version's answers cannot be read.
        """
        served, has_counted = list(self.holdouts), False
        with _Ticker(self._tell, BEAT_SECONDS, at_once=True):
            while not self.stopping.is_set():
                try:
                    has_counted = has_counted or self._count_known()
                    job = self.queue.claim(self.name, served=served, lease_seconds=self.lease_seconds)
                    if job is not None:
                        self.handle(job)
                    elif once:
                        return
                    else:
                        self.stopping.wait(POLL_SECONDS)
                except SQLAlchemyError as error:
                    log.warning("the database is unreachable, so the lease expires", exc_info=error)
                    self.stopping.wait(POLL_SECONDS)

    def _count_known(self) -> bool:
        """Add the answers in the database to the vault's count, and queue missing final ranks; return True."""
        with self.store.read() as connection:
            known = {key: answers_in_database(connection, *key) for key in self.holdouts}
            is_due = [
                key
                for key in self.holdouts
                if ranked_part(connection, *key) == "final" and not read_ranking(connection, *key, "final")[0]
            ]
        for (name, version), contents in known.items():
            count, limit = self.answers[name, version], self.settings.of(name).quota.board_total
            count.include(contents)
            n = len(count.read())
            log.info("worker %s serves %s %s, with %d of %d answers released", self.name, name, version, n, limit)
        with self.store.write() as connection:
            for key in is_due:
                Queue.put(connection, "rank", *key, "board")
        return True

    def handle(self, job: Job) -> None:
        """Run a leased job to its end."""
        facts = {"benchmark": job.benchmark, "version": job.version}
        log.info("%s of %s, attempt %d", job.kind, job.subject, job.attempts, extra=facts)
        holdout = self.holdouts[job.benchmark, job.version]
        with _Ticker(lambda: self._prolong(job), self.lease_seconds / 3, at_once=False):
            try:
                kept = self._do(job, holdout)
            except SQLAlchemyError:
                raise  # the submission is not the cause, so the job is run again
            except RefusedError as error:
                kept = self.queue.refuse(job, who=self._who, why=str(error))
            except Exception as error:
                if _is_outage(error):
                    self._wait_for_storage(job, error)
                    return
                details = error.detail if isinstance(error, ScoreFailed) else traceback.format_exc()
                number = holdout.vault.write_incident(f"{job.kind} {job.subject}", details)
                why = INCIDENT.format(number=number)
                log.error("%s of %s stopped: incident %s", job.kind, job.subject, number, extra=facts)
                kept = self.queue.fail(job, who=self._who, why=why, incident=number)
        self._pause = POLL_SECONDS
        if kept:
            log.info("%s of %s is done", job.kind, job.subject, extra=facts)
        else:
            log.info("%s of %s has a new worker; this result is dropped", job.kind, job.subject, extra=facts)

    def _wait_for_storage(self, job: Job, error: Exception) -> None:
        """Requeue a job and pause, longer each time, so that an outage does not fail all jobs in the queue."""
        log.warning("%s of %s cannot be done now: the storage is unavailable", job.kind, job.subject, exc_info=error)
        self.queue.give_back(job, who=self._who, why="The storage is unavailable; the job is tried again.")
        self.stopping.wait(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _prolong(self, job: Job) -> bool:
        return self.queue.heartbeat(job, lease_seconds=self.lease_seconds)

    def _tell(self) -> bool:
        """Record in the database that this worker is alive."""
        key = next((signer.public_key_text for signer in self.signers.values()), None)
        serves = list(self.holdouts)
        self.queue.beat_worker(self.name, serves=serves, confinement=self.custody.confinement, receipt_key=key)
        return True

    @property
    def _who(self) -> str:
        return f"worker:{self.name}"

    def _do(self, job: Job, holdout: Holdout) -> bool:
        if job.kind in ("score", "rescore"):
            return self._score(job, holdout)
        with self.store.write() as connection:  # more than scores can use up a board, such as other settings
            pause_used_up(connection, job.benchmark, job.version, self.settings, who=self._who)
        policy = self.settings.of(job.benchmark).release
        on_board = self._ranked(job, holdout, policy)
        with self.store.read() as connection:
            paired = boards.is_over(connection, job.benchmark, job.version)
            part = ranked_part(connection, job.benchmark, job.version)
        document = _twice(
            lambda: self.custody.rank(
                holdout.vault.folder, job.version, on_board, policy=policy, paired=paired, part=part
            )
        )
        return self.queue.finish_result(job, document=document)

    def _ranked(self, job: Job, holdout: Holdout, policy: ReleasePolicy) -> list[str]:
        """Return the submissions on the board whose scores show the metric of the ranks, which must reveal no other."""
        with self.store.read() as connection:
            kind = KINDS[holdout.manifest(boards.split_of(connection, job.benchmark, job.version)).kind]
        metric = ranking_metric(kind, policy)
        rows = self.store.board_rows(job.benchmark, job.version)
        return [
            submission.id
            for submission, score in rows
            if ReleasedScore.from_json(score.released).figure(metric) is not None
        ]

    def _score(self, job: Job, holdout: Holdout) -> bool:
        submission = self.store.get(job.subject)
        if submission is None:
            raise LookupError(f"job {job.id} belongs to a missing submission")
        with self.store.read() as connection:
            split = boards.split_of(connection, job.benchmark, job.version)
        submission = replace(submission, split=split)  # the name may differ in another version
        manifest = holdout.manifest(split)
        if KINDS[manifest.kind].scoring.scored_by == "readers":
            return self._score_ratings(job, holdout, submission, manifest)
        with self._predictions(submission, holdout, is_of_other_version=job.kind == "rescore") as predictions:
            canonical, signs, report = predictions
            outcome = self._outcome(canonical, submission, holdout, thresholds=_thresholds(submission.metadata))
        self.stopping.wait(self.pause_before_finish)
        outcome = replace(outcome, signs=tuple(signs))
        if report is not None and job.kind == "rescore":
            outcome = _with_coverage(outcome, report)
        return self._finish(job, outcome)

    def _score_ratings(self, job: Job, holdout: Holdout, submission: Submission, manifest: Manifest) -> bool:
        """Pass answers to tasks to readers or, once all are rated, score the submission by their ratings."""
        if job.kind == "rescore":
            raise RefusedError("Another version has different tasks, which must be answered and rated again.")
        with self.store.read() as connection:
            is_read = is_complete(connection, submission.id, self.settings.of(job.benchmark).reading)
            answers = [answer.to_answer() for answer in answers_of(connection, submission.id)]
            ratings = ratings_of(connection, submission.id)
        if not is_read:
            with self._predictions(submission, holdout) as (canonical, _, _):
                task_answers = read_canonical(canonical, manifest)
            return self.queue.await_readers(job, who=self._who, answers=task_answers)
        with tempfile.TemporaryDirectory() as scratch:
            file = Path(scratch) / "answers.npz"
            write_canonical(file, answers, manifest, ratings)
            outcome = self._outcome(file, submission, holdout)
        outcome = replace(outcome, signs=tuple(KINDS[manifest.kind].release.signs(answers, manifest)))
        return self._finish(job, outcome)

    def _finish(self, job: Job, outcome: ScoredOutcome) -> bool:
        """Write an outcome; return False if another worker has the lease, or if the board was paused.

        Raises
        ------
        RefusedError
            If the version has released as many scores as this worker's own settings allow.
        """
        guarded = GuardedOutcome(outcome, self.settings, lambda: self._admit(job, outcome))
        return self.queue.finish_score(job, who=self._who, outcome=guarded, sign=self._sign)

    def _admit(self, job: Job, outcome: ScoredOutcome) -> None:
        """Count an answer in the vault, or refuse to release it."""
        limit = self.settings.of(job.benchmark).quota.board_total
        if job.kind == "rescore":
            n_answers = (len(count.read()) for key, count in self.answers.items() if key[0] == job.benchmark)
            limit = max(limit, sum(n_answers) - len(self.answers[job.benchmark, job.version].read()))
        count = self.answers[job.benchmark, job.version]
        if outcome.has_figures and not count.admit(outcome.fingerprint.content, job.kind, limit):
            log.error(
                "%s %s has released its %d answers, so further scores are withheld: refresh the holdout, or "
                "raise quota.board_total in the worker's --settings",
                *(job.benchmark, job.version, limit),
            )
            raise RefusedError(USED_UP.format(limit=limit))

    @contextlib.contextmanager
    def _predictions(
        self, submission: Submission, holdout: Holdout, *, is_of_other_version: bool = False
    ) -> Iterator[tuple[Path, Sequence[str], Lint | None]]:
        """Yield the file of parsed predictions, the signs for moderators, and the lint report (None if the file was not
        parsed again).

        Raises
        ------
        RefusedError
            If the file is parsed again and has errors, or answers none of the version's questions.
        """
        with contextlib.ExitStack() as stack:
            is_kept = submission.stamp == self.custody.stamp(holdout.manifest(submission.split))
            if submission.canonical is not None and is_kept and not is_of_other_version:
                try:
                    kept = stack.enter_context(self.blobs.open_local(submission.canonical))
                except (FileNotFoundError, BlobDamagedError) as error:
                    log.warning("the stored predictions of %s cannot be used: %s", submission.id, error)
                else:
                    yield kept, submission.signs or (), None
                    return
            made = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "canonical.npz"
            parsed = self._parse_again(submission, holdout, made, is_of_other_version)
            yield made, parsed.signs, parsed.report

    def _parse_again(self, submission: Submission, holdout: Holdout, made: Path, is_of_other_version: bool) -> Parsed:
        try:
            parsed = _twice(lambda: self._parse(submission, holdout, made, is_of_other_version))
        except ParseFailed as error:
            raise RefusedError(str(error)) from None
        if not parsed.report.ok:
            raise RefusedError(f"The file does not pass the linter: {parsed.report.verdict}.")
        if is_of_other_version and not parsed.report.n_predictions:
            raise RefusedError("The file answers none of this version's questions.")
        return parsed

    def _outcome(self, canonical: Path, submission: Submission, holdout: Holdout, **options: Any) -> ScoredOutcome:
        return _twice(
            lambda: self.custody.score(
                canonical,
                holdout.folder,
                submission.split,
                policy=self.settings.of(submission.benchmark).release,
                vault=holdout.vault.folder,
                submission_id=submission.id,
                **options,
            )
        )

    def _parse(self, submission: Submission, holdout: Holdout, canonical: Path, is_of_other_version: bool) -> Parsed:
        with self.blobs.open_local(submission.sha256) as path:
            return self.custody.parse(
                path,
                holdout.manifest(submission.split),
                name=submission.filename,
                allow_missing=submission.allow_missing,
                is_of_other_version=is_of_other_version,
                canonical=canonical,
            )

    def _sign(self, connection: Any, submission: Submission, score: Score) -> None:
        receipts.append(connection, self.signers[submission.benchmark, score.version], submission, score)


def _sweep(vault: Path) -> None:
    """Remove partial files of killed workers; recent files are kept, because another worker may be writing them."""
    for path in vault.glob(".writing-*"):
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - HALF_WRITTEN_SECONDS:
                path.unlink()


def _twice(work: Callable[[], Answer]) -> Answer:
    """Return a child's answer; if the child was killed, run it once more.

    When memory is short, the kernel may kill a child that is not the cause.
    """
    try:
        return work()
    except (ParseFailed, ScoreFailed) as error:
        if error.kind != "too_large":
            raise
        log.warning("a child was killed; it is run once more")
    return work()


def _is_outage(error: Exception) -> bool:
    """Return True if an error means that storage is unavailable; a missing or damaged file does not."""
    return isinstance(error, OSError) and not isinstance(error, (FileNotFoundError, BlobDamagedError))


def _with_coverage(outcome: ScoredOutcome, report: Lint) -> ScoredOutcome:
    """Return the outcome with a note on questions of this version that a file for another version does not answer."""
    sentences = []
    if report.missing_pairs:
        n = f"{len(report.missing_pairs):,}"
        sentences.append(
            f"The file was made for another version: {n} questions of this version have no answer and count as misses."
        )
    sentences += [f"{one.message[0].upper()}{one.message[1:]}." for one in report.problems if one.rule == "left-out"]
    if not sentences:
        return outcome
    note = " ".join([outcome.released.note, *sentences])
    final = outcome.final and replace(outcome.final, note=note)
    return replace(outcome, released=replace(outcome.released, note=note), final=final)


def _thresholds(metadata: Mapping[str, Any]) -> float | dict[str, float]:
    """Return the submission's threshold: the probability from which a label counts as positive, or one per label;
    default 0.5.
    """
    stated = metadata.get("thresholds", 0.5)
    return dict(stated) if isinstance(stated, Mapping) else float(stated)


class _Ticker:
    """Calls `work` in a thread every `seconds` during the block, until `work` returns False."""

    def __init__(self, work: Callable[[], bool], seconds: float, *, at_once: bool) -> None:
        self._work, self._seconds, self._at_once = work, seconds, at_once
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="ticker", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _tick(self) -> None:
        pause = 0.0 if self._at_once else self._seconds
        while not self._done.wait(pause):
            pause = self._seconds
            try:
                if not self._work():
                    return
            except Exception:
                log.exception("a heartbeat failed; the next heartbeat may succeed")
