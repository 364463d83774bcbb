"""The prose of a card template, section by section, without its tables: what Croissant's descriptions are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reveal_bench.builders.card import PLACE, front_matter, sections

__all__ = ["citation", "section_prose"]

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z*`{\[])")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_CODE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def section_prose(template: str, values: Mapping[str, str]) -> dict[str, str]:
    """Heading -> plain text of every section.

    Code, tables and headings are left out, and so is every sentence with a place that `values` does not fill.
    Paragraphs are divided by one blank line.
    """
    _, body = front_matter(template)
    return {heading: _plain(text, values) for heading, text in sections(body).items()}


def citation(template: str) -> str:
    """The BibTeX entries of the template's section "Citation", or "" if it has none."""
    _, body = front_matter(template)
    blocks = _CODE.findall(sections(body).get("Citation", ""))
    return "\n".join(text.strip() for language, text in blocks if language == "bibtex")


def _plain(text: str, values: Mapping[str, str]) -> str:
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", _CODE.sub("", text)):
        if paragraph.lstrip().startswith(("|", "#")):
            continue
        filled = PLACE.sub(lambda match: values.get(match[1], match[0]), " ".join(paragraph.split()))
        kept = [sentence for sentence in _SENTENCE_END.split(filled) if not PLACE.search(sentence)]
        paragraphs.append(_LINK.sub(r"\1 (\2)", " ".join(kept)).replace("**", ""))
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)
