"""Write a table row for a paper, in LaTeX or Markdown: score, interval, n, and a footnote for checking the score.

Scores of a receipt keep the released decimals; scores of a score document have three decimals. Names come from
submitters and are escaped, so that LaTeX and Markdown read them as text and not as commands.
"""

from __future__ import annotations

from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.facts import Figure, Result
from reveal_bench.printed_tables import PrintedTable, escape_latex, escape_markdown, one_line
from reveal_bench.words import with_interval


def latex_table(result: Result, metric: str | None = None) -> str:
    """Return a LaTeX table with one row, which needs only the package ``\\usepackage[T1]{fontenc}``.

    Parameters
    ----------
    metric : metric of the score; by default the metric used for ranking

    Raises
    ------
    ValueError
        If the model is unknown or the score does not exist.
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
    head = ("Model", rf"{escape_latex(figure.what)} (95\,\% CI)$^{{a}}$", "$n$")
    return PrintedTable(head, [cells], f"$^{{a}}$ {'. '.join(notes)}.").to_latex(escape=str) + "\n"


def markdown_table(result: Result, metric: str | None = None) -> str:
    """Return a Markdown table with one row; arguments and errors are those of :func:`latex_table`."""
    figure = result.headline(metric)
    ends = result.interval(figure)
    score = with_interval(result.shown(figure)[0], "" if ends is None else " to ".join(ends))
    cells = (escape_markdown(_model(result)), score, escape_markdown(figure.count))
    notes = [escape_markdown(note) for note in _notes(result, figure)]
    if figure.signature is not None:
        notes.append(f"Signature {_code(figure.signature)}")
    if result.receipt is not None:
        notes.append(f"Receipt (SHA-256) `{result.receipt.hash}`")
    head = ("Model", f"{escape_markdown(figure.what)} (95% CI)<sup>a</sup>", "n")
    return f"{PrintedTable(head, [cells]).to_markdown(escape=str)}\n\n<sup>a</sup> {'. '.join(notes)}.\n"


def _code(text: str) -> str:
    """Return a text as code, with "?" for back quotes, which would end the code."""
    return f"`{one_line(text).replace('`', '?')}`"


def _model(result: Result) -> str:
    if result.model is None:
        raise ArgumentError("model", "must be given, because a row names the model and a score document does not")
    return result.model


def _notes(result: Result, figure: Figure) -> list[str]:
    first = result.place if figure.method is None else f"{result.place}; interval: {figure.method}"
    scale = [] if figure.scale is None else [f"Scale: {figure.scale}"]
    return [first, *scale, *([] if result.caveat is None else [result.caveat[0].upper() + result.caveat[1:]])]
