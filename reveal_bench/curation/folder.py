"""Manage a curation folder, which has the files of every step, and ``curation.json``, which records how each was made.

Conventions
-----------
A step is a function of its inputs, its settings and the folder's seed; its outputs contain no time, path or machine
name, so that repeating the step gives the same bytes. ``curation.json`` records for each step its settings, the SHA-256
of its inputs and outputs, its counts and the version of this package.

A step that is repeated with the same inputs and settings does nothing. With other inputs or settings, the step is
refused unless `redo` is True. After a redo, everything made from the step's files is *stale* until redone as well, and
no step reads stale files. A killed step leaves its working folder ``.<step>`` behind, and may resume in it. The
curation folder stays unchanged, unless the step was killed in the short time in which files are moved into place: then
the folder is *damaged*, and repeating the step repairs it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

import numpy as np

from reveal_bench.dataset.row_pool import file_state
from reveal_bench.files import write_whole
from reveal_bench.sources.study_tree import files_below
from reveal_bench.version import __version__

Progress = Callable[[int, int], None]

STATE_NAME = "curation.json"
ATTEMPT_NAME, LOCK_NAME = "attempt.json", ".lock"
FORMAT = 1

STEPS: dict[str, tuple[str, ...]] = {
    "extract": (),
    "sample": ("extract",),
    "assign": ("sample",),
    "import-votes": ("assign",),
    "consensus": ("sample", "import-votes"),
    "select": ("consensus",),
    "split": ("select",),
    "refresh": (),
    "candidates": (),
    "report": (),
}
"""Step -> the steps whose files it reads; `report` reads whatever exists."""


EDITABLE = ("benchmark/mapping.yaml",)
"""Outputs that the maintainer may edit: a refresh copies them, and a redo never overwrites edits."""


class CurationError(ValueError):
    """A step cannot be done in the current state of this folder."""


@dataclass(frozen=True)
class StepRecord:
    """The record of a finished step, with SHA-256 digests of external files by role and of the folder's files by name.

    The flow diagram and the report are made from `counts`.
    """

    step: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    outputs: dict[str, str]
    counts: dict[str, Any]
    version: str = __version__
    is_new: bool = field(default=True, compare=False)
    """True if the current call did the step, False if it was already done."""


@dataclass(frozen=True)
class StepState:
    """The state of a step: "done", "stale" (with the reason), "damaged" (an output was changed) or "open"."""

    step: str
    status: str
    why: str = ""
    record: StepRecord | None = None


class CurationFolder:
    """The folder at `root`, created by :meth:`create`.

    Raises
    ------
    CurationError
        If `root` is not a curation folder, or has another format.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        try:
            state = json.loads((self.root / STATE_NAME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CurationError(f"{root} is not a curation folder: it has no {STATE_NAME}") from None
        if state.get("format") != FORMAT:
            raise CurationError(f"{root}/{STATE_NAME} must have format {FORMAT}, got {state.get('format')!r}")
        self.name, self.seed = str(state["name"]), int(state["seed"])
        self._records = {name: StepRecord(step=name, **entry) for name, entry in state["steps"].items()}

    @classmethod
    def create(cls, root: Path, *, name: str, seed: int = 0) -> CurationFolder:
        """Start a curation in a new or empty folder.

        Raises
        ------
        CurationError
            If the folder is not empty.
        """
        root = Path(root)
        if root.exists() and any(root.iterdir()):
            raise CurationError(f"a curation must begin in a new or empty folder, got {root}")
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)  # the folder will contain reports and holdout labels
        write_whole(root / STATE_NAME, _document(name, seed, {}), single_writer=True)
        return cls(root)

    @classmethod
    @contextmanager
    def begun(cls, root: Path, *, name: str, seed: int = 0) -> Iterator[CurationFolder]:
        """Start a curation as :meth:`create`, and remove it if the block fails before any step has a result."""
        is_new = not Path(root).exists()
        folder = cls.create(root, name=name, seed=seed)
        try:
            yield folder
        except BaseException:
            own = {folder.path(name) for name in (STATE_NAME, LOCK_NAME)}
            own |= {folder.path(f".{step}") / ATTEMPT_NAME for step in STEPS}
            if all(path in own or (path.is_dir() and not path.is_symlink()) for path in folder.root.rglob("*")):
                for path in folder.root.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                if is_new:
                    folder.root.rmdir()
            raise

    def path(self, name: str) -> Path:
        """Return the path of an output."""
        return self.root / name

    def rng(self, step: str) -> np.random.Generator:
        """Return the random generator of a step, seeded by the folder's seed and the step's name."""
        return np.random.default_rng([self.seed, *sha256(step.encode()).digest()[:8]])

    def record(self, step: str) -> StepRecord | None:
        """Return the record of a step; None if the step was not done."""
        return self._records.get(step)

    # States of the steps --------------------------------------------------------------------------------------------

    def states(self) -> list[StepState]:
        """Return the states of all steps in order; a rarely needed step is included only after it was done."""
        return [self.state(step) for step in STEPS if step != "candidates" or step in self._records]

    def state(self, step: str) -> StepState:
        """Return the state of a step."""
        record = self._records.get(step)
        if record is None:
            return StepState(step, "open")
        for name, digest in record.outputs.items():
            if not self.path(name).is_file():
                return StepState(step, "damaged", f"{name} is missing", record)
            if name not in EDITABLE and _digest(self.path(name)) != digest:
                return StepState(step, "damaged", f"{name} was changed after it was written", record)
        for name, digest in record.inputs.items():
            maker = self._maker(name)
            if maker is not None and maker.outputs[name] != digest:
                return StepState(step, "stale", f"{name} was made again", record)
        for before in STEPS[step]:
            earlier = self.state(before)
            if earlier.status in ("stale", "damaged"):
                return StepState(step, "stale", f"{before} is {earlier.status}", record)
        return StepState(step, "done", "", record)

    def need(self, step: str) -> StepRecord:
        """Return the record of an earlier step, which must be done.

        Raises
        ------
        CurationError
            If that step is not done, or its outputs are stale or damaged.
        """
        state = self.state(step)
        if state.status == "open" or state.record is None:
            raise CurationError(f"{step} must be done first: reveal-bench curate {step}")
        if state.status != "done":
            raise CurationError(f"{step} is {state.status} ({state.why}): do it again with --redo")
        return state.record

    # Running a step -------------------------------------------------------------------------------------------------

    def run(
        self,
        step: str,
        settings: Mapping[str, Any],
        work: Callable[[Path], Mapping[str, Any]],
        *,
        reads: Sequence[str] = (),
        files: Mapping[str, Path] | None = None,
        writes: Sequence[str],
        redo: bool = False,
    ) -> StepRecord:
        """Do a step unless it is already done.

        Parameters
        ----------
        step : a key of :data:`STEPS`; the steps that it builds on must be done
        settings : everything that the outputs depend on besides files and seed, as JSON
        work : gets a working folder, writes all of `writes` into it and returns the counts; further files there survive
            an interruption if inputs and settings stay the same, and are removed once the step is done
        reads : the folder's own files that the step reads
        files : role -> external file, or folder (compared by names, sizes and times of files), that the step reads
        writes : names of the outputs, possibly in subfolders
        redo : repeat the step even if it was done; required with other inputs or settings

        Raises
        ------
        CurationError
            If an earlier step is not done, or this one was done with other inputs or settings.
        """
        for before in STEPS[step]:
            self.need(before)
        inputs = {name: _digest(self.path(name)) for name in reads}
        inputs |= {role: _digest(path, self.root) for role, path in (files or {}).items()}
        wanted: dict[str, Any] = json.loads(json.dumps(dict(settings)))
        with self._locked(step):
            done = self._records.get(step)
            if done is not None and not redo and (done.settings, done.inputs) == (wanted, inputs):
                if self.state(step).status == "done":
                    return StepRecord(**{**asdict(done), "is_new": False})
            elif done is not None and not redo:
                raise CurationError(
                    f"{step} was already done, {_difference(done, wanted, inputs)}: do it again with --redo"
                )
            scratch = self._scratch(step, {"settings": wanted, "inputs": inputs})
            counts = json.loads(json.dumps(dict(work(scratch))))
            outputs = {name: _digest(scratch / name) for name in writes}
            edited = self._edited(outputs, {} if done is None else done.outputs)
            for name in sorted({*writes} - {*edited}):
                self.path(name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(scratch / name, self.path(name))
            record = StepRecord(step, wanted, inputs, outputs, counts)
            self._save(record)
            shutil.rmtree(scratch)
        return record

    def _edited(self, new: Mapping[str, str], old: Mapping[str, str]) -> list[str]:
        """Return the edited outputs, which are kept; raise CurationError if the step now writes other originals."""
        there = [name for name in EDITABLE if name in new and name in old and self.path(name).is_file()]
        edited = [name for name in there if _digest(self.path(name)) not in (old[name], new[name])]
        for name in edited:
            if new[name] != old[name]:
                raise CurationError(f"{self.path(name)} was edited: rename it, repeat the step, and edit the new file")
        return edited

    def _scratch(self, step: str, what: dict[str, Any]) -> Path:
        """Return the working folder of a step, after removing files of an attempt with other inputs or settings."""
        scratch = self.root / f".{step}"
        token = scratch / ATTEMPT_NAME
        text = json.dumps(what, sort_keys=True)
        if not token.is_file() or token.read_text(encoding="utf-8") != text:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            write_whole(token, text, single_writer=True)
        return scratch

    @contextmanager
    def _locked(self, step: str) -> Iterator[None]:
        """Lock the folder for this process, and reread the state, which another process may have changed."""
        import fcntl

        with (self.root / LOCK_NAME).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CurationError(
                    f"another process is working in {self.root}; wait until it ends, then repeat {step}"
                ) from None
            for scrap in self.root.glob(".writing-*"):  # a killed process left this file
                scrap.unlink()
            self._records = CurationFolder(self.root)._records
            yield

    def _maker(self, name: str) -> StepRecord | None:
        return next((record for record in self._records.values() if name in record.outputs), None)

    def _save(self, record: StepRecord) -> None:
        self._records[record.step] = record
        write_whole(self.root / STATE_NAME, _document(self.name, self.seed, self._records), single_writer=True)


def _document(name: str, seed: int, records: Mapping[str, StepRecord]) -> str:
    entries = {}
    for step in STEPS:
        if step in records:
            entries[step] = {
                key: value for key, value in asdict(records[step]).items() if key not in ("step", "is_new")
            }
    return json.dumps({"format": FORMAT, "name": name, "seed": seed, "steps": entries}, indent=1) + "\n"


def _difference(done: StepRecord, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Describe how settings and inputs differ from those recorded for the step."""
    changed = [
        f"{name} was {done.settings.get(name)!r}, is {settings.get(name)!r}"
        for name in sorted(done.settings.keys() | settings.keys())
        if done.settings.get(name) != settings.get(name)
    ]
    changed += [
        f"{name} has changed"
        for name in sorted(done.inputs.keys() | inputs.keys())
        if done.inputs.get(name) != inputs.get(name)
    ]
    return "; ".join(changed)


def _digest(path: Path, root: Path | None = None) -> str:
    """Return the SHA-256 of a file, or of the paths, sizes and times of a folder's files that are not below `root`."""
    if path.is_dir():
        path, own = path.resolve(), root and root.resolve()
        files = [file for file in files_below(path) if own not in file.parents]
        states = [(file.relative_to(path).as_posix(), *file_state(file)[:2]) for file in files]
        return sha256(repr(states).encode()).hexdigest()
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
