"""Scores submissions: the only process that knows where a holdout lies.

Conventions
-----------
The worker lints the file once more, against the manifest, *before* it opens references; from then on nothing that it
says in public depends on what went wrong: an exception becomes one fixed sentence and an incident number. Exact figures
and the details of incidents go to the *vault*, a folder beside the holdout that only the worker's user can read; the
data folder, which the server shares, gets the released figures.

Scoring is deterministic, so a submission whose worker was killed is simply scored again under a new lease.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import threading
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sqlalchemy.exc import OperationalError

from reveal_bench.predictions import LintReport, lint_predictions
from reveal_bench.records import FolderInfo, read_folder_info, read_localization, read_manifest
from reveal_bench.scoring import CaseRows, score_localization, summarize
from reveal_leaderboard.blobs import Blobs, write_durably
from reveal_leaderboard.confinement import is_inside, readable_places
from reveal_leaderboard.intake import BOARD_LIMITS, open_data
from reveal_leaderboard.release import release
from reveal_leaderboard.store import LEASE_SECONDS, Store, Submission

__all__ = ["Holdout", "Vault", "Worker", "open_holdouts"]

POLL_SECONDS = 0.5
INCIDENT = (
    "Scoring stopped on our side. Nothing about the cause can be shown; please give the operators incident {number}."
)

log = logging.getLogger(__name__)


class Vault:
    """The folder of exact figures and incidents, mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)

    def write_exact(self, submission_id: str, rows: CaseRows) -> None:
        """Keep the unrounded estimates of every finding."""
        exact = [asdict(estimate) for estimate in summarize(rows)]
        write_durably(self.folder / f"{submission_id}.json", json.dumps(exact, indent=1).encode())

    def write_incident(self, submission_id: str) -> str:
        """Keep the present exception under a new incident number, and return the number."""
        number = f"INC-{secrets.token_hex(4).upper()}"
        text = f"submission {submission_id}\n{traceback.format_exc()}"
        write_durably(self.folder / f"{number}.txt", text.encode("utf-8", "backslashreplace"))
        return number

    def salt(self) -> bytes:
        """A secret made once, so that the public hash of the references confirms nobody's guess at them."""
        path = self.folder / "salt"
        if not path.exists():
            write_durably(path, secrets.token_bytes(32))
        return path.read_bytes()


@dataclass(frozen=True)
class Holdout:
    """The private references of one benchmark."""

    folder: Path
    info: FolderInfo
    vault: Vault

    def reference_hash(self, split: str) -> str:
        """Salted hash over the reference files of a split."""
        digest = hmac.new(self.vault.salt(), digestmod=hashlib.sha256)
        for shard in sorted((self.folder / "localization").glob(f"{split}-*.parquet")):
            digest.update(hashlib.sha256(shard.read_bytes()).digest())
        return digest.hexdigest()


def open_holdouts(folders: Mapping[str, Path], *, data: Path, vault: Path | None) -> dict[str, Holdout]:
    """Check where the holdouts lie, and read what they are.

    Raises
    ------
    ValueError
        If a holdout or vault lies where a server could read it, or is not the benchmark it is said to be.
    """
    holdouts = {}
    for name, folder in folders.items():
        private = folder.resolve().parent / "vault" if vault is None else vault
        for what, place in (("holdout", folder), ("vault", private)):
            if is_inside(place, [data]) or is_inside(data, [place]):
                raise ValueError(f"the {what} must lie apart from the data folder, which the server shares: {place}")
            if is_inside(place, readable_places()):
                raise ValueError(f"the {what} must not lie in a folder that the server reads as a program: {place}")
        info = read_folder_info(folder)
        absent = [split for split in info.splits if not any((folder / "localization").glob(f"{split}-*.parquet"))]
        if absent:
            raise ValueError(f"the holdout must hold the references of its split {absent[0]!r}, {folder} does not")
        if info.benchmark != name:
            raise ValueError(f"`holdout` {name!r} must be that benchmark, got a folder of {info.benchmark!r}")
        holdouts[name] = Holdout(folder, info, Vault(private))
    return holdouts


class Worker:
    """Takes submissions from the store, one at a time.

    Parameters
    ----------
    data : folder shared with the server
    holdouts : from :func:`open_holdouts`
    lease_seconds : how long a silent worker keeps its submission
    pause_before_finish : seconds to wait with a result in hand; for drills, such as killing the worker there
    """

    def __init__(
        self,
        data: Path,
        holdouts: Mapping[str, Holdout],
        *,
        lease_seconds: float = LEASE_SECONDS,
        pause_before_finish: float = 0.0,
    ) -> None:
        self.store: Store
        self.blobs: Blobs
        self.store, self.blobs = open_data(data)
        self.holdouts = holdouts
        self.name = f"{os.uname().nodename}-{os.getpid()}"
        self.lease_seconds = lease_seconds
        self.pause_before_finish = pause_before_finish
        self.stopping = threading.Event()

    def run(self, *, once: bool = False) -> None:
        """Score until :attr:`stopping` is set; with `once`, until the queue is empty."""
        served = [(name, holdout.info.version) for name, holdout in self.holdouts.items()]
        log.info("worker %s serves %s", self.name, ", ".join(f"{name} {version}" for name, version in served))
        while not self.stopping.is_set():
            try:
                submission = self.store.claim(self.name, served=served, lease_seconds=self.lease_seconds)
                if submission is not None:
                    self.handle(submission)
                elif once:
                    return
                else:
                    self.stopping.wait(POLL_SECONDS)
            except OperationalError as error:
                log.warning("the database does not answer (%s); a lease that is lost runs out", error.orig)
                self.stopping.wait(POLL_SECONDS)

    def handle(self, submission: Submission) -> None:
        """Bring one leased submission to its end."""
        log.info("scoring %s, attempt %d", submission.id, submission.attempts)
        holdout = self.holdouts[submission.benchmark]
        who = f"worker:{self.name}"
        with _Heartbeat(self.store, submission, self.lease_seconds):
            try:
                kept = self._score(submission, holdout, who)
            except OperationalError:
                raise  # not the submission's fault: it is leased again
            except Exception:
                number = holdout.vault.write_incident(submission.id)
                log.error("%s: %s", submission.id, INCIDENT.format(number=number))
                why = INCIDENT.format(number=number)
                kept = self.store.fail(submission.id, submission.fence, who=who, why=why, incident=number)
        log.info("%s %s", submission.id, "done" if kept else "was taken over by another worker; this result is dropped")

    def _score(self, submission: Submission, holdout: Holdout, who: str) -> bool:
        report = self._lint(submission, holdout)
        if not report.ok:
            why = f"The file does not pass the linter: {report.verdict}."
            return self.store.refuse(submission.id, submission.fence, who=who, why=why)
        records = read_localization(holdout.folder, submission.split)
        info = holdout.info
        rows = score_localization(report.predictions, records, findings=info.findings, grid=info.grid, asks=info.asks)
        released = release(rows)
        holdout.vault.write_exact(submission.id, rows)
        self.stopping.wait(self.pause_before_finish)
        return self.store.finish(
            submission.id,
            submission.fence,
            who=who,
            released=released.to_json(),
            signature=released.signature,
            reference_hash=holdout.reference_hash(submission.split),
        )

    def _lint(self, submission: Submission, holdout: Holdout) -> LintReport:
        manifest = read_manifest(holdout.folder, submission.split)
        path = self.blobs.path(submission.sha256)
        name, allow_missing = submission.filename, submission.allow_missing
        return lint_predictions(path, manifest, allow_missing=allow_missing, limits=BOARD_LIMITS, name=name)


class _Heartbeat:
    """Prolongs a lease from a thread of its own while the block runs."""

    def __init__(self, store: Store, submission: Submission, lease_seconds: float) -> None:
        self._store, self._submission, self._lease = store, submission, lease_seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._done.wait(self._lease / 3):
            try:
                if not self._store.heartbeat(self._submission.id, self._submission.fence, lease_seconds=self._lease):
                    return
            except Exception:
                log.exception("heartbeat of %s failed; the next one may do", self._submission.id)
