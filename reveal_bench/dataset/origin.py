"""The origin of a dataset, for ``croissant.json``: page, creators, date, use conditions, provenance.

These facts are in the block `croissant` of the card template's YAML, which the published card leaves out::

    croissant:
      url: https://example.org/set            # page of the dataset
      datePublished: 2026-05-01               # or a year
      creator: [{name: Example Hospital, type: Organization}]
      derivedFrom: [https://example.org/set]  # by default the page
      use: {permission: DUO_0000042, modifiers: [DUO_0000046], prohibitions: [distribute]}

By default `creator` and `datePublished` are the authors and the year of the first work that the card cites. The value
null means that only the makers of the dataset know a fact. Use conditions are terms of the Data Use Ontology and
actions of ODRL 2.2. Synthetic data have the licence of the program that drew them, and the card in their folder as
page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from reveal_bench.benchmarks import Benchmark
from reveal_bench.dataset.card import card_template, front_matter, template_name
from reveal_bench.dataset.citation import PROGRAM_AUTHORS, bibtex, cited_works

Json = dict[str, Any]

BLOCK = "croissant"
FIELDS = ("url", "datePublished", "creator", "derivedFrom", "use")
PROGRAM_PUBLISHED = "2026"
"""Year of publication of the program that draws synthetic data."""
CARD = "README.md"
PERMISSIONS = {"DUO_0000004": "no restriction", "DUO_0000042": "general research use"}
MODIFIERS = {"DUO_0000026": "user specific restriction", "DUO_0000046": "non-commercial use only"}
"""Terms of the Data Use Ontology, with their labels."""
PROHIBITIONS = {"distribute": "passing the data on to others"}
"""Action of ODRL 2.2 -> description."""

_URL = re.compile(r"https?://\S+")
_DATE = re.compile(r"[0-9]{4}(-[0-9]{2}-[0-9]{2})?")


def describe_origin(benchmark: Benchmark, *, synthetic: bool) -> Json:
    """Return the fields of ``croissant.json`` about the origin of the data; unknown facts have no field.

    Raises
    ------
    ValueError
        If the card's block `croissant` has an unknown field or a wrong value.
    """
    if synthetic:
        return {
            "url": CARD,
            "creator": [_organization(author["name"]) for author in PROGRAM_AUTHORS],
            "datePublished": PROGRAM_PUBLISHED,
            "prov:wasGeneratedBy": _activity("drawing by reveal_bench.phantom"),
        }
    template = card_template(benchmark)
    block, _ = front_matter(template)
    facts = _checked({} if block.get(BLOCK) is None else block[BLOCK], template_name(benchmark))
    first: Json = next(cited_works(bibtex(template)), {})
    creators = facts.get("creator", first.get("authors"))
    published = facts.get("datePublished", first.get("year"))
    pages = facts.get("derivedFrom") or [facts[name] for name in ("url",) if facts.get(name)]
    fields = {
        "url": facts.get("url"),
        "creator": [_creator(creator) for creator in creators or () if creator != {"name": "others"}],
        "datePublished": None if published is None else str(published),
        "usageInfo": _offer(facts["use"], block.get("license_link")) if facts.get("use") else None,
        "prov:wasDerivedFrom": [{"@id": page} for page in pages],
        "prov:wasGeneratedBy": _activity("reveal-bench build"),
    }
    return {name: value for name, value in fields.items() if value}


def _checked(facts: Any, file: str) -> Json:
    """Return the block `croissant`; raise ValueError if a field breaks its rule."""
    if not isinstance(facts, dict):
        raise _wrong(file, BLOCK, "must be a mapping", facts)
    for name, value in facts.items():
        if name not in FIELDS:
            raise _wrong(file, BLOCK, f"must only have the fields {', '.join(FIELDS)}", name)
        rule, is_right = _RULES[name]
        if value is not None and not is_right(value):
            raise _wrong(file, f"{BLOCK}.{name}", rule, value)
    return facts


def _wrong(file: str, field: str, rule: str, value: object) -> ValueError:
    return ValueError(f"{file}: `{field}` {rule}, got {value!r}")


def _is_url(value: object) -> bool:
    return isinstance(value, str) and _URL.fullmatch(value) is not None


def _is_date(value: object) -> bool:
    text = str(value)
    if isinstance(value, bool) or not _DATE.fullmatch(text):
        return False
    try:
        return bool(date.fromisoformat(text if len(text) > 4 else f"{text}-01-01"))
    except ValueError:
        return False


def _is_creators(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(creator, dict)
        and isinstance(creator.get("name"), str)
        and creator["name"].strip() != ""
        and creator.get("type") in ("Person", "Organization")
        and creator.keys() <= {"name", "type", "url"}
        and _is_url(creator.get("url", "https://example.org"))
        for creator in value
    )


def _is_use(value: object) -> bool:
    if not isinstance(value, dict) or not value.keys() <= {"permission", "modifiers", "prohibitions"}:
        return False
    lists = (("modifiers", MODIFIERS), ("prohibitions", PROHIBITIONS))
    return (
        _are_terms([value.get("permission", "DUO_0000042")], PERMISSIONS)
        and ("permission" in value or not value.get("modifiers"))
        and all(_are_terms(value.get(name, []), terms) for name, terms in lists)
    )


def _are_terms(value: object, terms: Mapping[str, str]) -> bool:
    return isinstance(value, list) and all(isinstance(term, str) and term in terms for term in value)


_RULES = {
    "url": ("must be an address, https://...", _is_url),
    "datePublished": ("must be a date, YYYY-MM-DD, or a year", _is_date),
    "creator": ("must list {name, type, url}, where type is Person or Organization and url is optional", _is_creators),
    "derivedFrom": (
        "must list addresses, https://...",
        lambda value: isinstance(value, list) and all(map(_is_url, value)),
    ),
    "use": (
        (
            f"must have `permission` ({', '.join(PERMISSIONS)}), a list of its `modifiers` "
            f"({', '.join(MODIFIERS)}) or a list of `prohibitions` ({', '.join(PROHIBITIONS)})"
        ),
        _is_use,
    ),
}
"""Field of the block -> (rule in words, function that returns True if a value follows the rule)."""


def _creator(creator: Mapping[str, str]) -> Json:
    """Return the Croissant entry of a creator in the block or an author in a citation file."""
    if creator.get("type") == "Organization":
        return _organization(creator["name"], creator.get("url"))
    if "family-names" in creator:
        given_names, family = creator["given-names"], creator["family-names"]
        return {"@type": "sc:Person", "name": f"{given_names} {family}", "givenName": given_names, "familyName": family}
    return {"@type": "sc:Person", **{name: creator[name] for name in ("name", "url") if name in creator}}


def _organization(name: str, url: str | None = None) -> Json:
    return {"@type": "sc:Organization", "name": name, **({} if url is None else {"url": url})}


def _activity(label: str) -> Json:
    agent = {"@type": "prov:SoftwareAgent", "prov:label": "reveal-bench"}
    return {"@type": "prov:Activity", "prov:label": label, "prov:wasAssociatedWith": agent}


def _offer(use: Mapping[str, Any], terms: str | None) -> Json:
    """Return the use conditions as an ODRL offer (Croissant's section "Fine-Grained Control with ODRL")."""
    offer: Json = {"@type": ["CreativeWork", "odrl:Offer"], "name": "Use conditions of the source"}
    if terms is not None:
        offer["url"] = terms
    if "permission" in use:
        permission: Json = {"@type": "odrl:Permission", "odrl:action": _term(use["permission"], PERMISSIONS)}
        modifiers: Sequence[str] = use.get("modifiers", ())
        if modifiers:
            permission["odrl:constraint"] = [
                {
                    "@type": "odrl:Constraint",
                    "name": MODIFIERS[code],
                    "odrl:operator": {"@id": "odrl:eq"},
                    "odrl:rightOperand": _term(code, MODIFIERS),
                }
                for code in modifiers
            ]
        offer["odrl:permission"] = permission
    if use.get("prohibitions"):
        offer["odrl:prohibition"] = [
            {"@type": "odrl:Prohibition", "odrl:action": {"@id": f"odrl:{action}", "name": PROHIBITIONS[action]}}
            for action in use["prohibitions"]
        ]
    return offer


def _term(code: str, labels: Mapping[str, str]) -> Json:
    return {"@id": f"duo:{code.removeprefix('DUO_')}", "name": labels[code]}
