"""Write a result for a paper or a page: a table row in LaTeX or Markdown, a BibTeX entry, or the leaderboard's badge.

A table row has score, interval, n, and a footnote for checking the score.

Scores of a receipt keep the released decimals; scores of a score document have three decimals. Names come from
submitters and are escaped, so that LaTeX and Markdown read them as text and not as commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode, urlsplit

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


def bibtex(result: Result, metric: str | None = None, url: str | None = None) -> str:
    """Return a BibTeX entry for a receipt; you fill in the date of access.

    Parameters
    ----------
    metric : metric of the score; by default the metric used for ranking
    url : address of the entry on the leaderboard; left out by default

    Raises
    ------
    ValueError
        If the result is no receipt, or the score does not exist.
    """
    receipt, submission, day = _of_receipt(result)
    figure = result.headline(metric)
    value, *ends = result.shown(figure)
    interval = f" (95\\,\\% interval {' to '.join(ends)})" if ends else ""
    return bibtex_entry(
        submission=submission,
        team=str(result.team),
        model=str(result.model),
        benchmark=result.title,
        version=result.version,
        day=day,
        notes=[
            f"{escape_bibtex(figure.what)} {value}{interval}",
            *([] if result.caveat is None else [escape_bibtex(result.caveat)]),
            escape_bibtex(f"split {result.split}, {result.part} part"),
            *([] if result.asked is None else [escape_bibtex(result.asked)]),
            f"scored {day}",
            f"receipt SHA-256 {receipt}",
        ],
        url=url,
    )


def badge(result: Result, metric: str | None = None, url: str | None = None) -> str:
    """Return the badge of a receipt's entry in Markdown, as an image that links to the entry.

    Parameters
    ----------
    metric : metric in the image's alternative text; by default the metric used for ranking
    url : address of the entry, or of any page of the leaderboard

    Raises
    ------
    ValueError
        If the result is no receipt, the score does not exist, or `url` is not an address.
    """
    _, submission, _ = _of_receipt(result)
    parts = urlsplit(url or "")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ArgumentError("url", "must be the http(s) address of the entry, for the badge", repr(url))
    server = f"{parts.scheme}://{parts.netloc}"
    figure = result.headline(metric)
    value, *ends = result.shown(figure)
    label = escape_markdown(f"{result.title} {result.version}: {with_interval(value, ' to '.join(ends))}")
    picture = f"{server}/badge/{submission}.svg?{urlencode({'version': result.version})}"
    entry = f"{server}/entry?{urlencode({'id': submission, 'version': result.version})}"
    return f"[![{label}]({picture})]({entry})"


def bibtex_entry(
    *,
    submission: str,
    team: str,
    model: str,
    benchmark: str,
    version: str,
    day: str,
    notes: Sequence[str],
    url: str | None,
) -> str:
    """Return a BibTeX entry of a result on a leaderboard.

    Parameters
    ----------
    submission : id of the submission
    day : day of scoring, such as "2026-11-22"
    notes : further facts, as LaTeX
    url : address of the entry; None to leave it out
    """
    title = f"{escape_bibtex(model)} on {escape_bibtex(benchmark)} {escape_bibtex(version)}"
    fields = {
        "author": f"{{{escape_bibtex(team)}}}",
        "title": f"{{{title}}}",
        "year": day[:4],
        "howpublished": "REVEAL leaderboard",
        "version": escape_bibtex(version),
        **({} if url is None else {"url": url.replace("%", r"\%"), "urldate": "YYYY-MM-DD"}),
        "note": ", ".join(notes),
    }
    lines = [f"  {name} = {{{text}}}," for name, text in fields.items()]
    return "\n".join((f"@misc{{reveal-{submission[:12]},", *lines, "}"))


def escape_bibtex(text: str) -> str:
    """Return a text as LaTeX for a BibTeX field; braces become commands, because BibTeX counts even escaped ones."""
    return escape_latex(text).replace(r"\{", r"{\textbraceleft}").replace(r"\}", r"{\textbraceright}")


def _of_receipt(result: Result) -> tuple[str, str, str]:
    """Return the hash of a receipt, its submission and the day of scoring."""
    if result.receipt is None or result.submission is None or result.time is None:
        raise ArgumentError("file", "must be a leaderboard's receipt for this form", "a score document")
    return result.receipt.hash, result.submission, result.time[:10]


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
