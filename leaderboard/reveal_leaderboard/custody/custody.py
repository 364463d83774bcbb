"""Run child processes that check an upload, score predictions, or rank submissions.

Only the score child opens references (:mod:`reveal_leaderboard.custody.scoring`), never the process that runs it.

Conventions
-----------
The output of a child is stored permanently only after its reply is validated; until then it is in unnamed files that
vanish with this process. Exact per-case rows are written to unnamed files *in the vault*. A process that must not see
holdouts never calls :meth:`Custody.score`, so that its score template never starts. For each way in which a child can
fail there is a fixed sentence.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from pydantic import BaseModel, ValidationError

from reveal_bench.kinds.folder import read_folder_info
from reveal_bench.kinds.parts import Manifest
from reveal_leaderboard.custody.arrays import dump_manifest, stamp_of
from reveal_leaderboard.custody.fork_client import TemplateError, TemplateService
from reveal_leaderboard.custody.limits import PARSE_LIMITS, SCORE_LIMITS, JailLimits
from reveal_leaderboard.custody.messages import TOO_LARGE, ExitStatus, JobRequest
from reveal_leaderboard.custody.replies import Parsed, RankAnswer, ScoreAnswer, check_released
from reveal_leaderboard.custody.sandbox import confinement_here
from reveal_leaderboard.release.fingerprints import Fingerprint
from reveal_leaderboard.release.outcomes import ScoredOutcome
from reveal_leaderboard.settings import ReleasePolicy

FailureKind = Literal["too_large", "timeout", "crashed"]

_SENTENCES: dict[FailureKind, str] = {
    "too_large": "Reading the file takes more memory than a check may use. Send a file with fewer or smaller "
    "masks, or a JSONL file, which is read line by line.",
    "timeout": "Checking the file takes too long. Send a file with fewer or smaller masks or contours.",
    "crashed": "The file could not be read: the check stopped. Run `reveal-bench lint` on the file to see why, "
    "or save it as JSONL.",
}


class ParseFailed(Exception):  # noqa: N818 - a normal outcome, not a program error
    """The check of an upload ended without a report; `kind` says how, and the text is fixed for each kind."""

    def __init__(self, kind: FailureKind) -> None:
        self.kind: FailureKind = kind
        super().__init__(_SENTENCES[kind])


class ScoreFailed(Exception):  # noqa: N818
    """Scoring or ranking ended without a result.

    The text is always the same. Only the vault may receive `kind` and `detail` (a traceback, or how the child died),
    because they may depend on references.
    """

    def __init__(self, kind: FailureKind, detail: str = "") -> None:
        self.kind: FailureKind = kind
        self.detail = detail
        super().__init__("Scoring stopped on our side.")


Part = Literal["public", "final"]
_OTHER: dict[Part, Part] = {"public": "final", "final": "public"}
Model = TypeVar("Model", bound=BaseModel)
log = logging.getLogger(__name__)

_MODULE = "reveal_leaderboard.custody"
_MANIFESTS_KEPT = 8


def cases_file(vault: Path, submission_id: str, version: str, part: Part = "public") -> Path:
    """Return the path of a submission's exact per-case rows in the vault."""
    return vault / f"{submission_id}.{version}{'' if part == 'public' else '.final'}.npz"


PARSES_AT_ONCE, SCORES_AT_ONCE = 2, 1
"""Maximum number of simultaneous children per kind; further requests wait."""


class Custody:
    """Manages the templates and runs children; safe to use from many threads.

    Parameters
    ----------
    scratch : folder for compiled kernels and unnamed files; a folder from an earlier start saves compilation
    parse_limits : limits of each child that reads an upload
    bubblewrap : whether to use bubblewrap; None to use it if it works on this machine
    """

    def __init__(
        self,
        scratch: Path,
        *,
        parse_limits: JailLimits = PARSE_LIMITS,
        bubblewrap: bool | None = None,
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._scratch, self._bubblewrap = scratch, bubblewrap
        parser = f"{_MODULE}.parsing"
        self._parser = TemplateService(parser, scratch, lanes=PARSES_AT_ONCE, limits=parse_limits, wrapped=bubblewrap)
        self._scorers: dict[Path | None, TemplateService] = {}
        self._lock = threading.Lock()
        self._manifests: list[tuple[Manifest, bytes, str]] = []

    def __enter__(self) -> Custody:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def confinement(self) -> str:
        """The confinement of the children, such as "rlimits, landlock-7, seccomp, no bubblewrap"."""
        services = [self._parser, *self._scorers.values()]
        return next((service.confinement for service in services if service.confinement), confinement_here())

    def template_ids(self) -> list[int]:
        """Return the process ids of the running templates."""
        return [service.pid for service in (self._parser, *self._scorers.values()) if service.pid is not None]

    def warm_up(self, holdouts: Sequence[Path] = ()) -> None:
        """Start templates in advance, so that no request has to wait.

        With `holdouts`, the score templates are started, otherwise the parse template. A worker, which has holdouts,
        rarely parses an upload, because the upload's arrays are already stored; so its parse template starts only when
        needed.

        Raises
        ------
        TemplateError
            If a template does not start.
        """
        for service in [self._scorer(holdout) for holdout in holdouts] or [self._parser]:
            service.start()
        if self.confinement.endswith("no bubblewrap"):
            log.warning("bubblewrap does not work here: children have no namespaces of their own")

    def close(self) -> None:
        """End all templates and children."""
        with self._lock:
            for service in (self._parser, *self._scorers.values()):
                service.close()

    def parse(
        self,
        path: Path,
        manifest: Manifest,
        *,
        name: str,
        allow_missing: bool = False,
        is_of_other_version: bool = False,
        canonical: Path | None = None,
    ) -> Parsed:
        """Lint an uploaded file in a child that can open no other file.

        Parameters
        ----------
        name : name of the file in the report
        is_of_other_version : True if the file answers another version of the split; new questions then count as
            missing, and questions that no longer exist are ignored
        canonical : path where the predictions of a file without errors are written, replacing an existing file

        Raises
        ------
        ParseFailed
            If the child ended without a report.
        OSError
            If `path` cannot be opened, or `canonical` cannot be written.
        """
        shared, _ = self._known(manifest)
        limits = self._parser.limits
        arguments = {"name": name, "allow_missing": allow_missing, "is_of_other_version": is_of_other_version}
        request = JobRequest("parse", arguments, limits, reopened=1)
        with _opened(path) as upload, self._outputs(self._scratch, 0 if canonical is None else 1) as outputs:
            handles = [upload, *(output.fileno() for output in outputs)]
            try:
                ended, answer = self._parser.run(request, handles, shared=shared)
            except TemplateError:
                log.exception("an upload could not be checked")
                raise ParseFailed("crashed") from None
            if ended.code != 0 or answer is None:
                raise ParseFailed(_failure(ended))
            try:
                parsed = Parsed.model_validate_json(answer)
            except ValidationError:
                raise ParseFailed("crashed") from None
            if parsed.report.ok and canonical is not None:
                _keep(outputs[0], canonical)
        return parsed

    def stamp(self, manifest: Manifest) -> str:
        """Return the stamp that predictions need to be scored with `manifest`; see :func:`.arrays.stamp_of`."""
        return self._known(manifest)[1]

    def score(
        self,
        canonical: Path,
        holdout: Path,
        split: str,
        *,
        policy: ReleasePolicy,
        vault: Path,
        submission_id: str,
        thresholds: float | Mapping[str, float] = 0.5,
    ) -> ScoredOutcome:
        """Score canonical predictions in a child that can open the holdout and no upload.

        Parameters
        ----------
        canonical : file of predictions, written by :meth:`parse`; for answers to tasks, the file with their ratings
            that :func:`~reveal_leaderboard.custody.arrays.write_canonical` wrote
        vault : folder with the file ``salt``, the key for the reference hash, the fingerprint and the choice of the
            final part; exact rows are stored there as :func:`cases_file`, under the holdout's version
        thresholds : for a findings-type benchmark, the probability from which a label counts as predicted

        Raises
        ------
        ScoreFailed
            If the child ended without a result; only the vault may receive its `detail`.
        """
        try:
            version, salt = read_folder_info(holdout).version, (vault / "salt").read_bytes()
        except (OSError, ValueError) as error:
            raise ScoreFailed("crashed", str(error)) from None
        arguments = {
            "holdout": str(holdout),
            "split": split,
            "policy": asdict(policy),
            "key": salt.hex(),
            "thresholds": thresholds if isinstance(thresholds, float) else dict(thresholds),
        }
        service = self._scorer(holdout)
        request = JobRequest("score", arguments, service.limits, places=(str(holdout),))
        with _opened(canonical) as arrays, self._outputs(vault, 2) as outputs:
            handles = [arrays, *(output.fileno() for output in outputs)]
            answer = _answered(service, request, handles, ScoreAnswer)
            try:
                released = check_released(answer.released, policy)
                final = None if answer.final is None else check_released(answer.final, policy)
            except ValueError as error:
                raise ScoreFailed("crashed", f"the child's answer: {error}") from None
            _keep(outputs[0], cases_file(vault, submission_id, version))
            if final is not None:
                _keep(outputs[1], cases_file(vault, submission_id, version, "final"))
        print_of = Fingerprint(answer.fingerprint.content, tuple(answer.fingerprint.sketch))
        return ScoredOutcome(released, final, answer.reference_hash, print_of)

    def rank(
        self,
        vault: Path,
        version: str,
        submissions: Sequence[str],
        *,
        policy: ReleasePolicy,
        paired: bool = False,
        part: Part = "public",
    ) -> dict[str, Any]:
        """Rank submissions by their rows in the vault on one part of the holdout; return
        :func:`reveal_leaderboard.release.ranking.rank_document` with its `part`. `paired` must be True, and `part`
        "final", only once the board is closed.

        Raises
        ------
        ScoreFailed
            If a submission has no rows for the version, or the child ended without a result.
        """
        service = self._scorer(None)
        limits = replace(service.limits, open_files=service.limits.open_files + len(submissions) + 1)
        request = JobRequest("rank", {"ids": list(submissions), "policy": asdict(policy), "paired": paired}, limits)
        with contextlib.ExitStack() as stack:
            try:
                files = [cases_file(vault, one, version, part) for one in submissions]
                other = [cases_file(vault, one, version, _OTHER[part]) for one in submissions[:1]]
                files += [file for file in other if file.exists()]
                handles = [stack.enter_context(_opened(file)) for file in files]
            except OSError as error:
                raise ScoreFailed("crashed", f"rows of a submission cannot be opened: {error}") from None
            answer = _answered(service, request, handles, RankAnswer)
        if not set(answer.entries) <= set(submissions):
            raise ScoreFailed("crashed", "the child ranked submissions that were not requested")
        return answer.model_dump(by_alias=True) | {"part": part}

    def _scorer(self, holdout: Path | None) -> TemplateService:
        """Return the score template of a holdout, whose folder bubblewrap must know at start.

        For None, return the template that reads only rows of the vault.
        """
        with self._lock:
            if holdout not in self._scorers:
                self._scorers[holdout] = TemplateService(
                    f"{_MODULE}.scoring",
                    self._scratch,
                    lanes=SCORES_AT_ONCE,
                    limits=SCORE_LIMITS,
                    read=[] if holdout is None else [holdout],
                    wrapped=self._bubblewrap,
                )
            return self._scorers[holdout]

    def _known(self, manifest: Manifest) -> tuple[bytes, str]:
        """Return a manifest in the format for templates, and its stamp."""
        with self._lock:
            for known, data, stamp in self._manifests:
                if known is manifest:
                    return data, stamp
        data, stamp = dump_manifest(manifest), stamp_of(manifest).hex()
        with self._lock:
            self._manifests = [*self._manifests[-_MANIFESTS_KEPT + 1 :], (manifest, data, stamp)]
        return data, stamp

    @contextlib.contextmanager
    def _outputs(self, folder: Path, n: int) -> Iterator[list[BinaryIO]]:
        """Yield `n` unnamed files in `folder`."""
        with contextlib.ExitStack() as stack:
            yield [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in range(n)]


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Yield a file descriptor for reading; links are not followed."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


def _keep(file: BinaryIO, path: Path) -> None:
    """Copy an unnamed file to `path`, readable by its owner only; after a crash, `path` is the old or the new file."""
    file.seek(0)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".writing-", delete=False) as copy:
        try:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())
            os.replace(copy.name, path)
        finally:
            Path(copy.name).unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _answered(service: TemplateService, request: JobRequest, files: Sequence[int], model: type[Model]) -> Model:
    try:
        ended, answer = service.run(request, files)
    except TemplateError as error:
        raise ScoreFailed("crashed", str(error)) from None
    if ended.code != 0 or answer is None:
        output = b"" if answer is None else answer
        raise ScoreFailed(_failure(ended), f"{_how(ended)}\n{output.decode('utf-8', 'replace')}")
    try:
        return model.model_validate_json(answer)
    except ValidationError as error:
        raise ScoreFailed("crashed", f"the child's answer: {error}") from None


def _failure(ended: ExitStatus) -> FailureKind:
    if ended.timed_out or ended.code == -signal.SIGXCPU:
        return "timeout"
    if ended.code in (TOO_LARGE, -signal.SIGKILL):  # the kernel sends this signal when memory is short
        return "too_large"
    return "crashed"


def _how(ended: ExitStatus) -> str:
    how = f"signal {signal.Signals(-ended.code).name}" if ended.code < 0 else f"exit code {ended.code}"
    peak = ended.peak_bytes >> 20
    return f"{how}{', out of time' if ended.timed_out else ''}, {ended.seconds:.1f} s, {peak} MiB at most"
