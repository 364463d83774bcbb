"""Count our files and functions that a command enters: ``python benchmarks/entered.py score FILE FOLDER``.

``--list`` as the first argument prints them too, in the order in which they are first entered.

The command runs in this process, its output is discarded, and ``sys.setprofile`` reports every call in every thread. A
function is a code object of `reveal_bench` that is entered at least once: functions, methods and properties, nested
ones too. Counted separately are bodies of modules and classes, which run on import; comprehensions, generator
expressions and lambdas, which belong to the function around them; and methods that `dataclasses` generates, which have
no line of ours. A file counts if one of its functions is entered. Functions called while modules are imported
(decorators, ``__init_subclass__``, tables of constants) are entered like any other, unless only an import enters them:
these are also counted separately, as are the files that have no other.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

PACKAGE = f"{Path(__file__).resolve().parent.parent / 'reveal_bench'}/"
BODY = "<module>"
EXPRESSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")


@dataclass
class Trace:
    """Code objects of the package that were entered, each in the order of first entry."""

    functions: dict[CodeType, None] = field(default_factory=dict)
    on_import: dict[CodeType, None] = field(default_factory=dict)
    expressions: dict[CodeType, None] = field(default_factory=dict)
    bodies: dict[CodeType, None] = field(default_factory=dict)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Record a call; a profile function of ``sys.setprofile``."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name == BODY or _is_class_body(code):
            self.bodies.setdefault(code)
        elif code.co_name in EXPRESSIONS:
            self.expressions.setdefault(code)
        elif _is_importing(frame):
            self.on_import.setdefault(code)
        else:
            self.functions.setdefault(code)


def _is_class_body(code: CodeType) -> bool:
    return "__qualname__" in code.co_names and not code.co_flags & 0x2  # no CO_NEWLOCALS


def _is_importing(frame: FrameType) -> bool:
    """Return True if the body of a module of ours called the function of `frame`, directly or not."""
    outer = frame.f_back
    while outer is not None and not outer.f_code.co_filename.startswith("<frozen importlib"):
        if outer.f_code.co_filename.startswith(PACKAGE) and outer.f_code.co_name == BODY:
            return True
        outer = outer.f_back
    return False


def trace(arguments: Sequence[str]) -> tuple[Trace, object]:
    """Run `reveal-bench` with `arguments`; return the trace and the exit status."""
    entered, status = Trace(), None
    sys.argv = ["reveal-bench", *arguments]
    threading.setprofile(entered.profile)
    sys.setprofile(entered.profile)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from reveal_bench.cli import main

            main()
    except SystemExit as end:
        status = end.code
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return entered, status


def main() -> None:
    """Print the counts."""
    arguments = sys.argv[1:]
    listed = arguments[:1] == ["--list"]
    entered, status = trace(arguments[listed:])
    if listed:
        for code in entered.functions:
            print(f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_firstlineno} {code.co_qualname}")
    files = {code.co_filename for code in entered.functions}
    only_import = {code for code in entered.on_import if code not in entered.functions}
    print(f"exit status {status or 0}")
    print(f"{len(files)} files, {len(entered.functions)} functions entered")
    print(
        f"apart: {len(entered.expressions)} comprehensions and lambdas, {len(only_import)} functions entered on import "
        f"alone, {len({code.co_filename for code in entered.bodies})} modules imported"
    )


if __name__ == "__main__":
    main()
