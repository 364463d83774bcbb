"""docs/metrics.md from METRICS and the docstrings: ``python -m reveal_bench.metrics.docs > docs/metrics.md``."""

from __future__ import annotations

import inspect
import re
import sys
from math import inf

from reveal_bench.metrics import FAMILIES, METRICS, Metric

__all__ = ["as_markdown", "plural_of", "range_text", "render", "sections_of"]

_HEAD = """\
# Metrics

<!-- Written by `python -m reveal_bench.metrics.docs > docs/metrics.md` from METRICS and docstrings: change those. -->

Scores are fractions, ratings keep their scale. Undefined is NaN and is counted; an absent prediction is a miss, never
undefined. `reveal-bench metrics` prints this table, `reveal-bench metrics --json` its rows for a script. Oracle is what
the tests compare a metric with.
"""


def plural_of(unit: str) -> str:
    """Several of what is resampled.

    Examples
    --------
    >>> plural_of("patient"), plural_of("study")
    ('patients', 'studies')
    """
    return f"{unit[:-1]}ies" if unit.endswith("y") else f"{unit}s"


def range_text(metric: Metric) -> str:
    """The range of a metric.

    Examples
    --------
    >>> range_text(METRICS["cohen_kappa"]), range_text(METRICS["mean_absolute_difference"])
    ('[-1, 1]', '[0, inf)')
    """
    return f"[{metric.low:g}, inf)" if metric.high == inf else f"[{metric.low:g}, {metric.high:.3g}]"


def render() -> str:
    """The whole of docs/metrics.md."""
    parts = [_HEAD]
    for family, about in FAMILIES.items():
        rows = [metric for metric in METRICS.values() if metric.family == family]
        parts.append(f"## {family.capitalize()}\n\n{about.capitalize()}.\n\n{_table(rows)}")
        parts += [_function(function, rows) for function in dict.fromkeys(metric.function for metric in rows)]
    return "\n".join(parts)


def _table(rows: list[Metric]) -> str:
    lines = ["| metric | title | range | better | undefined | source | oracle |", "|---|---|---|---|---|---|---|"]
    for metric in rows:
        cells = (f"`{metric.name}`", metric.title, range_text(metric), metric.better, metric.undefined, metric.source)
        lines.append(f"| {' | '.join(cells)} | {metric.oracle} |")
    return "\n".join(lines) + "\n"


def _function(function: str, rows: list[Metric]) -> str:
    """One function: its signature, what it says of itself, the formula of each of its metrics, an example."""
    metrics = [metric for metric in rows if metric.function == function]
    implementation = getattr(metrics[0].resolve(), "func", metrics[0].resolve())
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(implementation).parameters.values()
    ]
    call = f"{function}{inspect.Signature(parameters)}"
    sections = sections_of(implementation)
    lines = [f"### `{call}`", "", as_markdown(sections[""]), ""]
    for metric in metrics:
        options = ", ".join(f"{name}={value!r}" for name, value in metric.options.items())
        lines.append(f"* `{metric.name}`{f' ({options})' if options else ''}: {_escaped(metric.formula)}")
    if "Returns" in sections:
        lines += ["", f"Returns {as_markdown(sections['Returns'])}"]
    if "Examples" in sections:
        lines += ["", "```python", sections["Examples"], "```"]
    return "\n".join(lines) + "\n"


def sections_of(function: object) -> dict[str, str]:
    """Sections of a numpydoc docstring by their titles; "" is what comes before the first."""
    text = inspect.getdoc(function) or ""
    pieces = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    titles = ["", *pieces[1::2]]
    return {title: body.strip() for title, body in zip(titles, pieces[::2], strict=True)}


def as_markdown(text: str) -> str:
    """reStructuredText roles and double backquotes as Markdown."""
    plain = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return plain.replace("``", "`")


def _escaped(formula: str) -> str:
    return formula.replace("*", r"\*").replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(render())
