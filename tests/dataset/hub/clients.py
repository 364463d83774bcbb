"""Processes that use a Hub as users do, each with its own environment.

Run as a script this file is the process: it reads lines of JSON ``{"code": ...}``, runs the code, and answers with
``{"result": ..., "error": ..., "names": ..., "printed": ...}``, where `result` is what the code left in `result` and
`names` are the classes of what it raised. One process serves many tests: `datasets` takes seconds to import.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a piece of code: its `result`, or the error it raised, and everything it printed."""

    result: Any = None
    error: str | None = None
    names: tuple[str, ...] = ()
    printed: str = ""


@dataclass
class Client:
    """A Python process with its own environment, whose Hub is `endpoint`.

    Parameters
    ----------
    home : HF_HOME, its cache and its login; nobody else's
    is_stranger : `reveal_bench` cannot be imported, as on a machine that never heard of it
    """

    endpoint: str
    home: Path
    is_stranger: bool = False
    everything_printed: list[str] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        hub = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(self.home), "HF_HUB_DISABLE_XET": "1"}
        return {**kept, **hub, "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONDONTWRITEBYTECODE": "1"}

    def start(self) -> subprocess.Popen[str]:
        """Another process of this kind, for a test that ends it in the middle."""
        command = [sys.executable, "-I", __file__, "stranger" if self.is_stranger else str(ROOT)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=self.environment())

    def run(self, code: str, **values: object) -> Outcome:
        """Run `code` with `values` as variables; paths arrive as text."""
        if self._process is None:
            self._process = self.start()
        outcome = ask(self._process, code, **values)
        self.everything_printed += [outcome.printed, outcome.error or ""]
        return outcome

    def value(self, code: str, **values: object) -> Any:
        """Run code as :meth:`run` does, but raise its errors here."""
        outcome = self.run(code, **values)
        assert outcome.error is None, f"{outcome.names}: {outcome.error}\n{outcome.printed}"
        return outcome.result

    def close(self) -> None:
        if self._process is not None:
            stop(self._process)


def tell(process: subprocess.Popen[str], code: str, **values: object) -> None:
    """Send code without waiting for its end."""
    assert process.stdin is not None
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}
    process.stdin.write(json.dumps({"code": textwrap.dedent(code), "values": plain}) + "\n")
    process.stdin.flush()


def ask(process: subprocess.Popen[str], code: str, **values: object) -> Outcome:
    tell(process, code, **values)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the client process ended"
    answer = json.loads(line)
    return Outcome(answer["result"], answer["error"], tuple(answer["names"]), answer["printed"])


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


class _Blocked:
    """Check that nothing of this project can be imported."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name.split(".")[0] in ("reveal_bench", "reveal_leaderboard"):
            raise ModuleNotFoundError(f"No module named {name!r}")


def _serve() -> None:
    if sys.argv[1] == "stranger":
        sys.meta_path.insert(0, _Blocked)  # type: ignore[arg-type]
    else:
        sys.path.insert(0, sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        answer: dict[str, Any] = {"result": None, "error": None, "names": []}
        printed = io.StringIO()
        names: dict[str, Any] = dict(asked["values"])
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                exec(asked["code"], names)
                answer["result"] = names.get("result")
            except BaseException as error:
                answer["error"] = str(error)
                answer["names"] = [cls.__name__ for cls in type(error).__mro__]
        answers.write(json.dumps({**answer, "printed": printed.getvalue()}, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
