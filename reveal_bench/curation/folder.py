"""A curation folder: the files of every step, and ``curation.json``, which says how each was made.

Conventions
-----------
A step is a function of its inputs, its settings and the folder's seed; its outputs hold no time, no path and no name of
a machine, so that the same step again gives the same bytes. ``curation.json`` records of each step its settings, the
SHA-256 of what it read and wrote, its counts and the version of this package.

Asked for again with the same inputs and settings, a step does nothing. With others it is refused, unless it is to be
redone; then what was made from it is *stale* until it is redone, too, and no step reads what is stale. A step that is
killed leaves its working folder ``.<step>`` behind, where it may find what is done already, and the folder as it was,
or, for the moment in which files take their places, *damaged*; the same step again makes it whole.
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

from reveal_bench.files import write_whole
from reveal_bench.version import __version__

Progress = Callable[[int, int], None]

STATE_NAME = "curation.json"
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
"""Step -> the steps whose files it reads; `report` reads whatever there is."""


class CurationError(ValueError):
    """A step cannot be done in this folder as it stands."""


@dataclass(frozen=True)
class StepRecord:
    """How a step was done. Digests are of files: outside ones by their role, the folder's own by their name.

    `counts` are what the flow diagram and the report are drawn from.
    """

    step: str
    settings: dict[str, Any]
    inputs: dict[str, str]
    outputs: dict[str, str]
    counts: dict[str, Any]
    version: str = __version__
    is_new: bool = field(default=True, compare=False)
    """Whether this very call did it."""


@dataclass(frozen=True)
class StepState:
    """Where a step stands: "done", "stale" (with the reason), "damaged" (an output was changed) or "open"."""

    step: str
    status: str
    why: str = ""
    record: StepRecord | None = None


class CurationFolder:
    """The folder at `root`, made by :meth:`create`.

    Raises
    ------
    CurationError
        If `root` holds no curation, or one of another format.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        try:
            state = json.loads((self.root / STATE_NAME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CurationError(f"{root} is not a curation folder: it has no {STATE_NAME}") from None
        if state.get("format") != FORMAT:
            raise CurationError(f"{root}/{STATE_NAME} must be of format {FORMAT}, got {state.get('format')!r}")
        self.name, self.seed = str(state["name"]), int(state["seed"])
        self._records = {name: StepRecord(step=name, **entry) for name, entry in state["steps"].items()}

    @classmethod
    def create(cls, root: Path, *, name: str, seed: int = 0) -> CurationFolder:
        """Begin a curation in a new or empty folder.

        Raises
        ------
        CurationError
            If there is something in the folder.
        """
        root = Path(root)
        if root.exists() and any(root.iterdir()):
            raise CurationError(f"a curation begins in a new or empty folder, got {root}")
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o700)  # it will hold what reports say, and the labels of a holdout
        write_whole(root / STATE_NAME, _document(name, seed, {}), is_alone=True)
        return cls(root)

    def path(self, name: str) -> Path:
        """Where an output lies."""
        return self.root / name

    def rng(self, step: str) -> np.random.Generator:
        """The random numbers of a step, from the folder's seed and the step's name."""
        return np.random.default_rng([self.seed, *sha256(step.encode()).digest()[:8]])

    def record(self, step: str) -> StepRecord | None:
        """How a step was done, None if it was not."""
        return self._records.get(step)

    # What is done ---------------------------------------------------------------------------------------------------

    def states(self) -> list[StepState]:
        """Where every step stands, in the order in which they happen; one that few need, once it was done."""
        return [self.state(step) for step in STEPS if step != "candidates" or step in self._records]

    def state(self, step: str) -> StepState:
        """Where a step stands."""
        record = self._records.get(step)
        if record is None:
            return StepState(step, "open")
        for name, digest in record.outputs.items():
            if not self.path(name).is_file():
                return StepState(step, "damaged", f"{name} is missing", record)
            if _digest(self.path(name)) != digest:
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
        """The record of a step that must be done before.

        Raises
        ------
        CurationError
            If it is not, or no longer.
        """
        state = self.state(step)
        if state.status == "open" or state.record is None:
            raise CurationError(f"{step} must be done first: reveal-bench curate {step}")
        if state.status != "done":
            raise CurationError(f"{step} is {state.status} ({state.why}): do it again with --redo")
        return state.record

    # Doing ----------------------------------------------------------------------------------------------------------

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
        """Do a step, or find that it is done.

        Parameters
        ----------
        step : a key of :data:`STEPS`; what it builds on must be done
        settings : everything that the outputs depend on besides files and seed, as JSON
        work : given a working folder, writes every one of `writes` into it and returns the counts; what else it leaves
            there is found again if it was interrupted with the same inputs and settings, and removed when it is done
        reads : the folder's own files that it reads
        files : role -> file from outside that it reads
        writes : names of the outputs, possibly in subfolders
        redo : do it again, though it was done; with other inputs or settings, only so

        Raises
        ------
        CurationError
            If an earlier step is not done, or this one was done otherwise.
        """
        for before in STEPS[step]:
            self.need(before)
        inputs = {name: _digest(self.path(name)) for name in reads}
        inputs |= {role: _digest(path) for role, path in (files or {}).items()}
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
            for name in writes:
                self.path(name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(scratch / name, self.path(name))
            record = StepRecord(step, wanted, inputs, outputs, counts)
            self._save(record)
            shutil.rmtree(scratch)
        return record

    def _scratch(self, step: str, what: dict[str, Any]) -> Path:
        """The working folder of a step; what an earlier attempt at something else left there is removed."""
        scratch = self.root / f".{step}"
        token = scratch / "attempt.json"
        text = json.dumps(what, sort_keys=True)
        if not token.is_file() or token.read_text(encoding="utf-8") != text:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            write_whole(token, text, is_alone=True)
        return scratch

    @contextmanager
    def _locked(self, step: str) -> Iterator[None]:
        """One process at a time changes the folder; what another wrote meanwhile is read again."""
        import fcntl

        with (self.root / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CurationError(f"another process is working in {self.root}; wait for it, then do {step}") from None
            for scrap in self.root.glob(".writing-*"):  # of a process that was killed
                scrap.unlink()
            self._records = CurationFolder(self.root)._records
            yield

    def _maker(self, name: str) -> StepRecord | None:
        return next((record for record in self._records.values() if name in record.outputs), None)

    def _save(self, record: StepRecord) -> None:
        self._records[record.step] = record
        write_whole(self.root / STATE_NAME, _document(self.name, self.seed, self._records), is_alone=True)


def _document(name: str, seed: int, records: Mapping[str, StepRecord]) -> str:
    entries = {}
    for step in STEPS:
        if step in records:
            entries[step] = {
                key: value for key, value in asdict(records[step]).items() if key not in ("step", "is_new")
            }
    return json.dumps({"format": FORMAT, "name": name, "seed": seed, "steps": entries}, indent=1) + "\n"


def _difference(done: StepRecord, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """What differs from how the step was done."""
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


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
