"""Write docs/metrics.md and docs/api.md from METRICS and from docstrings: ``python docs/write_reference.py``.

A test compares both pages with the code.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import reveal_bench
from reveal_bench import api
from reveal_bench.api.result_table import TableResult, TablesResult
from reveal_bench.metrics import FAMILIES, METRICS, Metric
from reveal_bench.metrics.scales import range_text

__all__ = ["api_page", "metrics_page"]


METRICS_HEAD = """\
# Metrics

<!-- Written by `python docs/write_reference.py` from METRICS and docstrings: change those. -->

For anyone who needs the definition of a score: range, formula, source and an example of every metric. Scores are
fractions, ratings keep their scale. Undefined values are NaN and counted. A missing prediction is a miss, never
undefined. `reveal-bench metrics` prints these tables, `reveal-bench metrics --json` their rows for a script. The column
"oracle" names what the tests compare a metric with.
"""
CONVENTIONS = """\
## Differences from other scripts

Each row compares our metric with a plain version of the published rule on 250 small random and degenerate inputs
(`tests/metrics/test_conventions.py`). "Differ" counts different results, "both" those of them where both have a value.
RSNA's kernel counts all boxes, `rsna_precision` those that score at least the threshold (0.5).

| ours | rule | differ | both | why |
|---|---|---|---|---|
| `balanced_accuracy` | scikit-learn | 169 | 0 | references of one class: NaN here, their recall there |
| `mcc` | scikit-learn | 210 | 0 | decisions or references of one class: NaN here, 0 there |
| `log_loss` | scikit-learn | 0 | 0 | |
| `average_precision` | scikit-learn | 169 | 0 | references of one class: NaN here, 0 or 1 there |
| macro `average_precision` of two labels | scikit-learn | 115 | 86 | one class: left out here, 0 or 1 there |
| `cohen_kappa_quadratic` | scikit-learn | 59 | 59 | unused categories count as steps here, not there |
| `siim_dice` | SIIM-ACR 2019 | 0 | 0 | |
| `dice` | SIIM-ACR 2019 | 43 | 0 | two empty masks: NaN here, 1 there |
| `pixel_average_precision` | scikit-learn | 102 | 0 | empty reference: NaN here, 0 there |
| `pooled_pixel_ap` | PxAP | 0 | 0 | |
| `grounding_iou` | BioViL | 0 | 0 | |
| `contrast_to_noise` | BioViL | 12 | 0 | constant map: 0 here, no value there |
| `box accuracy` | Wang et al. 2017 | 0 | 0 | `score --box-accuracy`, T(IoU) and T(IoBB) of 0.1 to 0.9 |
| `voc_ap_40` | VOC 2010 as in VinBigData 2021 | 0 | 0 | |
| `voc_ap_40` of "No finding" | VinBigData 2021 | 0 | 0 | [a box (0, 0, 1, 1) on images without a finding](sources.md) |
| `ap_40` | VOC 2010 as in VinBigData 2021 | 194 | 194 | COCO's rule here: 101 recalls, IoU 0.4 hits |
| `rsna_precision` of all boxes | RSNA 2018 | 2 | 2 | marks choose lesions here, lesions choose marks there |
| `image_auroc` | object-CXR 2020 | 0 | 0 | |
| `cpm` | object-CXR's FROC | 135 | 135 | interpolated here; there the first mark at or past each rate |
"""
API_HEAD = """\
# Functions and results

<!-- Written by `python docs/write_reference.py` from docstrings: change those. -->

For notebooks and scripts: every function of `reveal_bench` (`import reveal_bench as rb`), its options and its results.
[In Python](python.md) has examples. Predictions with errors raise `LintError`, whose `report` lists all of them. An
argument that breaks its rule raises `ArgumentError`, a missing library `ImportError` with the command that installs it.
"""


def metrics_page() -> str:
    """Return the text of docs/metrics.md."""
    parts = [METRICS_HEAD, CONVENTIONS]
    for family, about in FAMILIES.items():
        rows = [metric for metric in METRICS.values() if metric.family == family]
        parts.append(f"## {family.capitalize()}\n\n{about[0].upper()}{about[1:]}.\n\n{_table(rows)}")
        parts += [_metric_function(function, rows) for function in dict.fromkeys(metric.function for metric in rows)]
    return "\n".join(parts)


def _table(rows: list[Metric]) -> str:
    lines = ["| metric | title | range | better | undefined | source | oracle |", "|---|---|---|---|---|---|---|"]
    for metric in rows:
        cells = (f"`{metric.name}`", metric.title, range_text(metric), metric.better, metric.undefined, metric.source)
        lines.append(f"| {' | '.join(cells)} | {metric.oracle} |")
    return "\n".join(lines) + "\n"


def _metric_function(function: str, rows: list[Metric]) -> str:
    """Return the section of a function: signature, docstring, the formula of each of its metrics, and an example."""
    metrics = [metric for metric in rows if metric.function == function]
    implementation = getattr(metrics[0].resolve(), "func", metrics[0].resolve())
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(implementation).parameters.values()
    ]
    call = f"{function}{inspect.Signature(parameters)}"
    sections = _sections_of(implementation)
    lines = [f"### `{call}`", "", _as_markdown(sections[""]), ""]
    for metric in metrics:
        options = ", ".join(f"{name}={value!r}" for name, value in metric.options.items())
        lines.append(f"* `{metric.name}`{f' ({options})' if options else ''}: {_escaped(metric.formula)}")
    if "Returns" in sections:
        lines += ["", f"Returns {_as_markdown(sections['Returns'])}"]
    if "Examples" in sections:
        lines += ["", "```python", sections["Examples"], "```"]
    return "\n".join(lines) + "\n"


def _escaped(formula: str) -> str:
    return formula.replace("*", r"\*").replace("|", r"\|").replace("<", "&lt;")


def api_page() -> str:
    """Return the text of docs/api.md: the functions of :mod:`reveal_bench.api`, then the classes of their results."""
    public = {name: getattr(api, name) for name in api.__all__}
    functions = [_function(name, thing) for name, thing in public.items() if not inspect.isclass(thing)]
    classes = [_class(name, thing) for name, thing in public.items() if inspect.isclass(thing)]
    others = ", ".join(f"`{name}`" for name in reveal_bench.__all__ if name not in api.__all__)
    tail = f"Also public: {others}; their docstrings say what they do (`help(rb.run_callable)`).\n"
    attributes = _items(_sections_of(TableResult)["Attributes"])
    shared = ["Every result with `records` also has:", "", *attributes, *_members(TableResult), ""]
    several = ["Every result with `tables` also has:", "", *_members(TablesResult), ""]
    return "\n".join([API_HEAD, *functions, "## Results\n", *shared, *several, *classes, tail])


def _function(name: str, function: Any) -> str:
    sections = _sections_of(function)
    lines = [f"## `{_call(name, function)}`", "", _as_markdown(sections[""]), ""]
    if "Parameters" in sections:
        lines += [*_items(sections["Parameters"], _defaults(function)), ""]
    return "\n".join(lines)


def _call(name: str, function: Any) -> str:
    """Return the signature without types and without options, which the list of parameters has."""
    names = [parameter.name for parameter in _parameters(function) if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    options = ["..."] * (len(names) < len(_parameters(function)))
    return f"rb.{name}({', '.join([*names, *options])})"


def _parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _defaults(function: Any) -> dict[str, str]:
    return {p.name: f"={p.default!r}" for p in _parameters(function) if p.default is not p.empty}


def _items(section: str, defaults: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return the entries of a section, ``name : text`` with continuation lines, as items of a Markdown list."""
    whole = re.sub(r"\n +", " ", section)
    entries = (line.partition(" : ") for line in whole.splitlines() if line)
    named = ((", ".join(f"`{name}{defaults.get(name, '')}`" for name in names.split(", ")), text)
             for names, _, text in entries)  # fmt: skip
    return [f"* {names}: {_as_markdown(text)}" if text else f"* {names}" for names, text in named]


def _class(name: str, thing: type) -> str:
    sections = _sections_of(thing)
    lines = [f"### `{name}`", "", _as_markdown(sections[""]), ""]
    if "Attributes" in sections:
        lines += _items(sections["Attributes"])
    lines += _members(thing)
    return "\n".join([*lines, ""])


def _members(thing: type) -> list[str]:
    """Return the public members of a class as a list, without those of every table."""
    lines = []
    bases = [base for base in (TableResult, TablesResult) if base is not thing and issubclass(thing, base)]
    for member, value in inspect.getmembers(thing):
        function = value.fget if isinstance(value, property) else getattr(value, "func", value)
        text = inspect.getdoc(function) if callable(function) else None
        is_shared = member not in ("records", "tables") and any(hasattr(base, member) for base in bases)
        if member.startswith("_") or text is None or is_shared:
            continue
        is_called = inspect.isfunction(value)
        lines.append(f"* `{member}{'()' if is_called else ''}`: {_as_markdown(_first(text))}")
    return lines


def _first(text: str) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join(text.split("\n\n")[0].split())


def _sections_of(function: object) -> dict[str, str]:
    """Return the sections of a numpydoc docstring by their titles; "" is the text before the first section."""
    text = inspect.getdoc(function) or ""
    pieces = re.split(r"^(\w[\w ]*)\n-{3,}\n", text, flags=re.MULTILINE)
    titles = ["", *pieces[1::2]]
    return {title: body.strip() for title, body in zip(titles, pieces[::2], strict=True)}


def _as_markdown(text: str) -> str:
    """Return reStructuredText roles and double backquotes as Markdown."""
    plain = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return plain.replace("``", "`")


if __name__ == "__main__":
    docs = Path(__file__).parent
    (docs / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (docs / "api.md").write_text(api_page(), encoding="utf-8")
