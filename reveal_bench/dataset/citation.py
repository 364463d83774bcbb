"""Citation of a dataset folder: ``CITATION.cff`` (Citation File Format 1.2.0), and ``.zenodo.json`` for Zenodo.

The content comes from the card's template: the works to cite from its section "Citation", the licence from its YAML
block. The authors are those of the first work, which must describe the source; for synthetic data they are the authors
of the program. "and others" at the end of a list of authors is kept. If the template cites nothing, no file is written.
For Zenodo, data without an open licence are marked as restricted by the terms of their source.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from reveal_bench.benchmarks import Benchmark
from reveal_bench.dataset.card import SYNTHETIC_LICENCE, card_template, front_matter, sections

CITATION, ZENODO = "CITATION.cff", ".zenodo.json"
TYPES = {"article": "article", "inproceedings": "conference-paper"}
PROGRAM_AUTHORS = [{"name": "The reveal-bench authors"}]
SPDX = {
    "apache-2.0": "Apache-2.0", "cc0-1.0": "CC0-1.0", "cc-by-4.0": "CC-BY-4.0", "cc-by-nc-4.0": "CC-BY-NC-4.0",
    "cc-by-sa-4.0": "CC-BY-SA-4.0", "cc-by-nc-sa-4.0": "CC-BY-NC-SA-4.0", "mit": "MIT",
}  # fmt: skip
"""Name of a licence on the Hub -> SPDX identifier."""

_BIBTEX = re.compile(r"^```bibtex\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^@(\w+)\{\w+,$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"(\w+)\s*=\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_ACCENT = re.compile(r"\{\\(['`^\"~])(\w)\}")
_COMBINING = {"'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303"}
_ARXIV = re.compile(r"(?:arXiv:)?(\d{4}\.\d{4,5})")


def bibtex(template: str) -> str:
    """Return the BibTeX entries in the template's section "Citation", "" without entries."""
    _, body = front_matter(template)
    return "\n".join(text.strip() for text in _BIBTEX.findall(sections(body).get("Citation", "")))


def render_citation(benchmark: Benchmark, *, version: str, synthetic: bool) -> str | None:
    """Return the text of ``CITATION.cff``, or None if the card's template cites nothing."""
    import yaml

    document = _document(benchmark, version, synthetic)
    if document is None:
        return None
    return yaml.dump(document, Dumper=_no_anchors(), sort_keys=False, width=120, allow_unicode=True)


def render_zenodo(benchmark: Benchmark, *, version: str, synthetic: bool) -> str | None:
    """Return the text of ``.zenodo.json``, or None if the card's template cites nothing."""
    document = _document(benchmark, version, synthetic)
    if document is None:
        return None
    works = [*filter(None, [document.get("preferred-citation")]), *document.get("references", ())]
    sources = [work.get("doi") or work.get("url") for work in works]
    terms = f"Terms of the source: {document['license-url']}" if "license-url" in document else "Of the source."
    access = (
        {"access_right": "open", "license": document["license"]}
        if "license" in document
        else {"access_right": "restricted", "access_conditions": terms}
    )
    metadata = {
        "title": document["title"],
        "description": f"{document['title']}, version {version}, built by reveal-bench.",
        "upload_type": "dataset",
        "version": version,
        "creators": [{"name": _in_one(author)} for author in document["authors"]],
        **access,
        "related_identifiers": [
            {"identifier": source, "relation": "isDerivedFrom"} for source in sources if source is not None
        ],
    }
    return json.dumps(metadata, indent=2, ensure_ascii=False) + "\n"


def _in_one(author: dict[str, str]) -> str:
    """Return an author as "Family, Given"."""
    return author.get("name") or f"{author['family-names']}, {author['given-names']}"


def _document(benchmark: Benchmark, version: str, synthetic: bool) -> dict[str, Any] | None:
    """Return the content of ``CITATION.cff`` as a dict, or None if the card's template cites nothing."""
    template = card_template(benchmark)
    works = list(cited_works(bibtex(template)))
    if not works:
        return None
    document = {
        "cff-version": "1.2.0",
        "message": "Please cite the works on which this dataset is based.",
        "type": "dataset",
        "title": ("Synthetic stand-in for " if synthetic else "") + benchmark.title,
        "version": version,
        "authors": PROGRAM_AUTHORS if synthetic else works[0]["authors"],
        **_licence(template, synthetic),
        **({} if synthetic else {"preferred-citation": works[0]}),
        "references": works if synthetic else works[1:],
    }
    return {name: value for name, value in document.items() if value}


def _no_anchors() -> Any:
    """Return a YAML dumper that writes a repeated list again instead of an alias."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    return Dumper


def _licence(template: str, synthetic: bool) -> dict[str, str]:
    """Return the field with the licence's SPDX identifier or, without one, the address of the source's terms; or {}."""
    if synthetic:
        return {"license": SPDX[SYNTHETIC_LICENCE]}
    block, _ = front_matter(template)
    if block["license"] in SPDX:
        return {"license": SPDX[block["license"]]}
    return {"license-url": block["license_link"]} if "license_link" in block else {}


def cited_works(entries: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a BibTeX text in the format of a citation file.

    Raises
    ------
    ValueError
        If an entry has no title, author or year.
    """
    for kind, body in _ENTRY.findall(entries):
        entry = {name.lower(): _plain(text) for name, text in _FIELD.findall(body)}
        if not {"title", "author"} <= entry.keys() or not entry.get("year", "").isdigit():
            raise ValueError(f"an entry of the card's citation must have title, author and year in braces, got {entry}")
        work: dict[str, Any] = {
            "type": TYPES.get(kind, "generic"),
            "title": entry["title"],
            "authors": [_author(name) for name in entry["author"].split(" and ")],
            "year": int(entry["year"]),
        }
        arxiv = _ARXIV.fullmatch(entry.get("eprint") or entry.get("journal", ""))
        if arxiv is not None:
            work["url"] = f"https://arxiv.org/abs/{arxiv[1]}"
        elif "journal" in entry:
            work["journal"] = entry["journal"]
        if "booktitle" in entry:
            work["conference"] = {"name": entry["booktitle"]}
        if "publisher" in entry:
            work["publisher"] = {"name": entry["publisher"]}
        work |= {name: entry[of] for name, of in _SAME.items() if of in entry}
        first, dash, last = entry.get("pages", "").partition("–")
        work |= {name: page for name, page in (("start", first), ("end", last if dash else "")) if page}
        yield work


_SAME = {"volume": "volume", "issue": "number", "doi": "doi"}
"""Field of a citation file -> equivalent BibTeX field."""


def _author(name: str) -> dict[str, str]:
    family, comma, given_names = name.partition(", ")
    return {"family-names": family, "given-names": given_names} if comma else {"name": name}


def _plain(text: str) -> str:
    """Return a BibTeX text as one line, with commands for accents replaced by accented characters."""
    accented = _ACCENT.sub(lambda match: unicodedata.normalize("NFC", match[2] + _COMBINING[match[1]]), text)
    return " ".join(accented.replace("--", "–").split())
