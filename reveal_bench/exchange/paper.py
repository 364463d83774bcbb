"""A row for a paper, in LaTeX and in Markdown: value with interval, n, and a footnote from which it can be checked.

Figures of a receipt are written with the decimals that were released, those of a score document with three. Names come
from whoever submitted: they are text in either language, never commands.
"""

from __future__ import annotations

import re

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.facts import Figure, Result
from reveal_bench.words import with_interval

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}",
}  # fmt: skip
_MINUS = re.compile(r"(?<![^\s(])-(?=[\d ])")
_JOINING = re.compile("-(?=-)")  # two would join to a dash
_MARKDOWN = re.compile(r"[\\`*_\[\]<>|~&$@#]|:(?=//)|(?<=www)\.", re.IGNORECASE)


def escape_latex(text: str) -> str:
    r"""A text as LaTeX (T1 fonts) that prints it.

    Examples
    --------
    >>> print(escape_latex(r"50% of_A&B \input{x}"))
    50\% of\_A\&B \textbackslash{}input\{x\}
    >>> print(escape_latex("-0.3 (-5.4 to 4.8), two-sided, a--b"))
    $-$0.3 ($-$5.4 to 4.8), two-sided, a-{}-b
    """
    plain = "".join(_LATEX.get(character, character) for character in _one_line(text))
    return _JOINING.sub("-{}", _MINUS.sub("$-$", plain))


def escape_markdown(text: str) -> str:
    r"""A text as Markdown that shows it, in a cell of a table too.

    Examples
    --------
    >>> print(escape_markdown("a|b <i>*c*"))
    a\|b \<i\>\*c\*
    """
    return _MARKDOWN.sub(lambda match: f"\\{match[0]}", _one_line(text))


def _one_line(text: str) -> str:
    """Spaces for line ends; nothing that a program would obey."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def latex_table(result: Result, metric: str | None = None) -> str:
    """A table of one row, without any package but ``\\usepackage[T1]{fontenc}``.

    Parameters
    ----------
    metric : of the figure; by default the metric that ranks

    Raises
    ------
    ValueError
        If the model is not known or there is no such figure.
    """
    figure = result.headline(metric)
    ends = result.interval(figure)
    value = f"${result.shown(figure)[0]}$"
    score = with_interval(value, "" if ends is None else f"${ends[0]}$ to ${ends[1]}$")
    cells = (escape_latex(_model(result)), score, escape_latex(figure.count))
    notes = [escape_latex(note) for note in _notes(result, figure)]
    if figure.signature is not None:
        notes.append(rf"Signature \texttt{{{escape_latex(figure.signature)}}}")
    if result.receipt is not None:
        digest = result.receipt.hash
        split = r"\allowbreak ".join(digest[i : i + 16] for i in range(0, len(digest), 16))
        notes.append(rf"Receipt (SHA-256) \texttt{{{split}}}")
    lines = [
        r"\begin{tabular}{lll}",
        r"\hline",
        rf"Model & {escape_latex(figure.what)} (95\,\% CI)$^{{a}}$ & $n$ \\",
        r"\hline",
        " & ".join(cells) + r" \\",
        r"\hline",
        r"\end{tabular}",
        "",
        rf"{{\footnotesize $^{{a}}$ {'. '.join(notes)}.}}",
    ]
    return "\n".join(lines) + "\n"


def markdown_table(result: Result, metric: str | None = None) -> str:
    """A table of one row; otherwise as :func:`latex_table`."""
    figure = result.headline(metric)
    ends = result.interval(figure)
    score = with_interval(result.shown(figure)[0], "" if ends is None else " to ".join(ends))
    cells = (escape_markdown(_model(result)), score, escape_markdown(figure.count))
    notes = [escape_markdown(note) for note in _notes(result, figure)]
    if figure.signature is not None:
        notes.append(f"Signature {_code(figure.signature)}")
    if result.receipt is not None:
        notes.append(f"Receipt (SHA-256) `{result.receipt.hash}`")
    lines = [
        f"| Model | {escape_markdown(figure.what)} (95 % CI)<sup>a</sup> | n |",
        "|---|---|---|",
        f"| {' | '.join(cells)} |",
        "",
        f"<sup>a</sup> {'. '.join(notes)}.",
    ]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """A text of ours in code; a back quote would end it."""
    return f"`{_one_line(text).replace('`', '?')}`"


def _model(result: Result) -> str:
    if result.model is None:
        raise ArgumentError("model", "must be given: a score document does not name the model, and a row does")
    return result.model


def _notes(result: Result, figure: Figure) -> list[str]:
    first = result.place if figure.method is None else f"{result.place}; interval: {figure.method}"
    scale = [] if figure.scale is None else [f"Scale: {figure.scale}"]
    return [first, *scale, *([] if result.caveat is None else [result.caveat[0].upper() + result.caveat[1:]])]
