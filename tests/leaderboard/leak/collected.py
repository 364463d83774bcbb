"""Everything that a whole run left behind, and the places that are searched."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from io import BytesIO
from itertools import product
from pathlib import Path

from reveal_leaderboard.boards.catalogue import read_published
from reveal_leaderboard.custody import BOARD_LIMITS
from reveal_leaderboard.custody.arrays import write_canonical

from reveal_bench.kinds import KINDS
from reveal_bench.predictions.limits import LintOptions
from tests.leaderboard.leak.canaries import Leak, Search
from tests.leaderboard.leak.secrets import search_for
from tests.leaderboard.leak.whole_run import Run

PLACES = (
    "answers", "webhooks", "files while the worker runs", "files in the end", "database", "memory of the server",
)  # fmt: skip
CHUNK, OVERLAP = 1 << 20, 4096
NOTHING = bytes(CHUNK + OVERLAP)


@dataclass
class Collected:
    """A finished run with its leaks by place."""

    run: Run
    search: Search
    leaks: dict[str, list[Leak]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> Collected:
        """Run, and search every place in time: files before they are removed, memory while the server runs."""
        while_at_work: list[Leak] = []
        root = run.board.root
        run.go(lambda: while_at_work.extend(_search(run).within_folder(root, besides=made_at_home(run))))
        collected = cls(run, _search(run))
        collected.leaks = {
            "answers": collected.in_answers(),
            "webhooks": collected.search.within(repr(run.receiver.got).encode(), "webhooks"),
            "files while the worker runs": while_at_work,
            "files in the end": collected.search.within_folder(root, besides=made_at_home(run)),
            "database": collected.search.within(dump_of(run.board.data / "leaderboard.sqlite"), "database"),
            "memory of the server": collected.in_memory(run.board.server.pid),
        }
        return collected

    def in_answers(self) -> list[Leak]:
        """Return all secrets in headers and bodies sent by the server."""
        leaks = []
        for body, asked in {answer.body: answer.asked for answer in self.run.board.wire.answers}.items():
            leaks += self.search.within(body, asked)
        heads = {answer.headers for answer in self.run.board.wire.answers}
        return leaks + self.search.within(b"\n".join(sorted(heads)), "headers")

    def in_memory(self, pid: int) -> list[Leak]:
        """Return all secret texts in the memory of the process."""
        dresses = ("plain", "UTF-16")
        return [leak for place, part in memory_of(pid) for leak in self.search.texts_within(part, place, only=dresses)]


def made_at_home(run: Run) -> list[Path]:
    """Return stored arrays identical to those computed from an upload and only the public manifest.

    They contain the senders' own numbers, which may equal exact scores by chance.
    """
    folders = run.board.hospital.publics
    manifests = [read_published(folder, "holdout").manifest for folder in folders]
    stored = {path.name: path for path in run.board.root.rglob("*") if len(path.name) == 64 and path.is_file()}
    for (name, upload), manifest in product(stored.items(), manifests):
        key = name, f"{manifest.benchmark} {manifest.version}"
        if key not in run.made:
            report = KINDS[manifest.kind].predictions.lint(
                upload, manifest, LintOptions(allow_missing=True, limits=BOARD_LIMITS)
            )
            arrays = BytesIO()
            if report.ok:
                write_canonical(arrays, report.predictions, manifest)
            run.made[key] = sha256(arrays.getvalue()).hexdigest() if report.ok else None
    files = (path for path in run.board.root.rglob("*") if path.name in run.made.values())
    return [path for path in files if sha256(path.read_bytes()).hexdigest() == path.name]


def _search(run: Run) -> Search:
    version = "1.0.0"
    pairs = [(f"{run.ids[f'{kind} A']}.{version}.npz", f"{run.ids[f'{kind} B']}.{version}.npz")
             for kind in ("images", "studies")]  # fmt: skip
    return search_for(run.board.hospital, pairs)


def dump_of(path: Path) -> bytes:
    """Return all rows as SQL, so that values spread over pages of the file are in one piece."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return "\n".join(connection.iterdump()).encode()


def memory_of(pid: int) -> Iterator[tuple[str, bytes]]:
    """Yield (place, bytes) for all writable memory of a process, except mapped files."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            fields = line.split()
            if "w" not in fields[1] or (len(fields) > 5 and not fields[5].startswith("[heap")):
                continue
            start, stop = (int(end, 16) for end in fields[0].split("-"))
            for at in range(start, stop, CHUNK):
                try:
                    memory.seek(at)
                    part = memory.read(min(CHUNK + OVERLAP, stop - at))
                except OSError:  # reserved, or already unmapped
                    break
                if part != NOTHING[: len(part)]:
                    yield f"memory at {at:x}", part
