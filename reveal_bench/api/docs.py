"""docs/api.md from the docstrings: ``python -m reveal_bench.api.docs > docs/api.md``."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import reveal_bench
from reveal_bench import api
from reveal_bench.metrics.docs import as_markdown, sections_of

__all__ = ["render"]

_HEAD = """\
# Functions and results

<!-- Written by `python -m reveal_bench.api.docs > docs/api.md` from docstrings: change those. -->

`import reveal_bench as rb`; [In Python](python.md) shows them at work.
"""


def render() -> str:
    """The whole of docs/api.md: the functions of :mod:`reveal_bench.api`, then what they return."""
    public = {name: getattr(api, name) for name in api.__all__}
    functions = [_function(name, thing) for name, thing in public.items() if not inspect.isclass(thing)]
    classes = [_class(name, thing) for name, thing in public.items() if inspect.isclass(thing)]
    others = ", ".join(f"`{name}`" for name in reveal_bench.__all__ if name not in api.__all__)
    tail = f"Also public: {others}; their docstrings say what they do (`help(rb.run_callable)`).\n"
    return "\n".join([_HEAD, *functions, "## Results\n", *classes, tail])


def _function(name: str, function: Any) -> str:
    sections = sections_of(function)
    lines = [f"## `rb.{name}`", "", "```python", _call(name, function), "```", "", as_markdown(sections[""]), ""]
    if "Parameters" in sections:
        lines += [*_items(sections["Parameters"]), ""]
    if "Raises" in sections:
        lines += ["Raises:", "", *_items(re.sub(r"\n +", " : ", sections["Raises"])), ""]
    return "\n".join(lines)


def _call(name: str, function: Any) -> str:
    """The signature without types, over several lines."""
    found = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in _parameters(function)]
    text = str(inspect.Signature(found))
    if len(text) < 90:
        return f"rb.{name}{text}"
    lines = "".join(f"    {part},\n" for part in text[1:-1].split(", "))
    return f"rb.{name}(\n{lines})"


def _parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _items(section: str) -> list[str]:
    """Entries of a section, ``name : text`` with lines that go on, as a list."""
    whole = re.sub(r"\n +", " ", section)
    entries = (line.partition(" : ") for line in whole.splitlines() if line)
    return [f"* {_names(name)}: {as_markdown(text)}" if text else f"* {_names(name)}" for name, _, text in entries]


def _names(text: str) -> str:
    return ", ".join(f"`{name}`" for name in text.split(", "))


def _class(name: str, thing: type) -> str:
    sections = sections_of(thing)
    lines = [f"### `{name}`", "", as_markdown(sections[""]), ""]
    if "Attributes" in sections:
        lines += _items(sections["Attributes"])
    for member, value in inspect.getmembers(thing):
        function = value.fget if isinstance(value, property) else getattr(value, "func", value)
        text = inspect.getdoc(function) if callable(function) else None
        if member.startswith("_") or text is None:
            continue
        is_called = inspect.isfunction(value)
        lines.append(f"* `{member}{'()' if is_called else ''}`: {as_markdown(_first(text))}")
    return "\n".join([*lines, ""])


def _first(text: str) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    sys.stdout.write(render())
