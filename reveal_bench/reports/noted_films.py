"""Sections of a dataset report on ``manifest/films.json``: films that the build noted, and what it left out."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import TypeVar

from reveal_bench.dataset.build_log import FilmRecord, film_record_problems
from reveal_bench.dataset.tables import DatasetFolder, TableFile
from reveal_bench.dataset.validate_rows import pictures_of
from reveal_bench.files import FILMS
from reveal_bench.kinds.images import VIEWS
from reveal_bench.kinds.rows import Row, image_facts_of
from reveal_bench.reports.films import ExampleImage, picked_rows, render_image
from reveal_bench.reports.page import Custom, PageTable, Part, Text
from reveal_bench.sources.source import BuildError
from reveal_bench.words import count_text

MOST_SHOWN = 24
"""Largest number of films on the sheet."""
SIDE_PX = 240
_NUMBER = re.compile(r"\d[\d,.]*")
Entry = TypeVar("Entry")
_FACTS = ("image_id", "image_facts", "prior_image_facts")


def noted_sections(
    folder: DatasetFolder, tables: Sequence[TableFile], image_ids: Collection[str] | None = None
) -> list[tuple[str, Sequence[Part]]]:
    """Return (title, parts) of the sections; none if the folder has no record of its build.

    Parameters
    ----------
    tables : files of the main config and of inputs with the films that may be shown
    image_ids : the only images to show, without what was left out; None for all
    """
    path = folder.path / FILMS
    if not path.is_file():
        return []
    problems = [problem for problem in film_record_problems(folder.path, ()) if problem.field != "image_id"]
    if problems:  # the page may be published
        raise BuildError(problems)
    record = FilmRecord(**json.loads(path.read_text(encoding="utf-8")))
    notes, faults = (_noted(ids, image_ids) for ids in (record.notes, record.faults))
    sections: list[tuple[str, Sequence[Part]]] = [("Films to check", list(_film_parts(notes, faults, tables)))]
    if image_ids is None:
        sections.append(("Left out", _left_out_parts(record)))
    return sections


def _noted(texts: Mapping[str, Sequence[str]], image_ids: Collection[str] | None) -> list[tuple[str, str]]:
    """Return (text, image id) for each image that a text is about."""
    return [(text, one) for text, ids in texts.items() for one in ids if image_ids is None or one in image_ids]


Noted = Sequence[tuple[str, str]]


def _film_parts(notes: Noted, faults: Noted, tables: Sequence[TableFile]) -> Iterator[Part]:
    reasons: dict[str, list[str]] = {}
    for text, image_id in (*faults, *notes):
        reasons.setdefault(image_id, []).append(text)
    if not reasons:
        yield Text("The build noted nothing about any film.")
        return
    yield Text(
        "Films that may show nothing, whose header contradicts the picture or itself, or that could not be shown as "
        "their header says. Look at them before you publish or use them."
    )
    yield _table_of_notes(notes, faults)
    films = _films(list(islice(_in_turn(notes, faults), MOST_SHOWN)), tables)
    if films:
        yield Custom("sheet", [(film, reasons[image_id]) for image_id, film in films.items()])
    n_more = len(reasons) - len(films)
    if n_more:
        yield Text(f"{f'{n_more:,} more' if films else count_text(n_more, 'film')}, listed in {FILMS}.")


def _table_of_notes(notes: Noted, faults: Noted) -> PageTable:
    rows = [("may show nothing", f"{len(faults):,}")] if faults else []
    kinds = alike(faults)
    rows += [(text, f"{len(ids):,}") for text, ids in (*kinds.items(), *alike(notes).items())]
    inside = range(1, 1 + len(kinds))
    return PageTable(["Note", "Films"], rows, "Films by note", inside=inside, is_caption_shown=False)


def alike(pairs: Iterable[tuple[str, Entry]]) -> dict[str, list[Entry]]:
    """Group (text, entry) by text, the most frequent first; texts that differ only in numbers are one group.

    Examples
    --------
    >>> alike([("99.1% are black", "a"), ("unreadable", "b"), ("98.5% are black", "c")])
    {'99.1% are black': ['a', 'c'], 'unreadable': ['b']}
    """
    groups: dict[str, tuple[str, list[Entry]]] = {}
    for text, entry in pairs:
        groups.setdefault(_NUMBER.sub("#", text), (text, []))[1].append(entry)
    return dict(sorted(groups.values(), key=lambda group: -len(group[1])))


def _in_turn(notes: Noted, faults: Noted) -> Iterator[str]:
    """Yield image ids, each once: first those with a fault, then the first of each note, the second, and so on."""
    turns = chain.from_iterable(zip_longest(*alike(notes).values()))
    yield from dict.fromkeys(one for one in (*(image_id for _, image_id in faults), *turns) if one is not None)


def _films(image_ids: Sequence[str], tables: Sequence[TableFile]) -> dict[str, ExampleImage]:
    """Return a dict from image id to film, in the order of the ids, without films whose pixels are withheld."""
    films: dict[str, ExampleImage] = {}
    wanted = set(image_ids)

    def is_picked(row: Row) -> bool:
        return any(facts["image_id"] in wanted for facts in image_facts_of(row))

    for row in picked_rows(tables, _FACTS, is_picked):
        for _, picture, facts in pictures_of(row):
            name = facts["image_id"]
            if name in wanted and name not in films and isinstance(picture, dict):
                film = render_image(picture["bytes"], facts["width"], facts["height"], side=SIDE_PX)
                view = VIEWS[facts["view"]]
                films[name] = ExampleImage(film, f"{name} · {view}", f"{view} radiograph", ())
    return {name: films[name] for name in image_ids if name in films}


def _left_out_parts(record: FilmRecord) -> Sequence[Part]:
    if not record.left_out:
        return [Text("The build left out nothing.")]
    counts = {reason: sum(ns) for reason, ns in alike(record.left_out.items()).items()}
    rows = [(reason, f"{counts[reason]:,}") for reason in sorted(counts, key=lambda reason: -counts[reason])]
    return [
        Text("The build left out these files and entries of the download, by reason:"),
        PageTable(["Reason", "Number"], rows, "Left out by reason", is_caption_shown=False),
    ]
