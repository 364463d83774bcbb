"""Ids of images, studies or tasks as other programs write them: as numbers, such as 36199.0 for "36199", or as paths.

pandas reads a column of digits as integers, or as floats if a cell is empty, and leading zeros are lost. A number is
only read as an id if the split has exactly that text as an id, and no other id with the same number, such as "007".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

ADVICE = "read ids with dtype=str"
_DIGITS = re.compile("[0-9]{1,15}")
"""Ids in plain digits; a float is exact up to this length."""
_KEYED = re.compile("(study|image|patient)-[0-9a-f]{16}")
"""Ids as :func:`reveal_bench.sources.ids.keyed_id` makes them."""
_ENDINGS = (".dicom", ".dcm", ".png", ".jpeg", ".jpg", ".npy", ".nii.gz", ".nii")
_DECIMAL = re.compile(r"([0-9]{1,15})\.0+")


def advice_on_numbers(numbers: Iterable[object], ids: Collection[str], key: str) -> str:
    """Return advice for numbers that are not ids: to read them as text if any of the `ids` has only digits."""
    advice = f": {ADVICE}" if any(map(_DIGITS.fullmatch, ids)) else advice_on_keyed(ids)
    are_rows = all(number in range(len(ids)) for number in numbers)
    return advice + (f"; if they number the rows of the dataset, give its column `{key}`" if are_rows else "")


def advice_on_keyed(ids: Iterable[str]) -> str:
    """Return where to find the source's names of ids that a key made; empty for other ids."""
    is_keyed = _KEYED.fullmatch(next(iter(ids), ""))
    return "; `build --id-table FILE` lists the source's name of each id" if is_keyed else ""


def ids_by_number(ids: Iterable[str]) -> dict[float, str]:
    """Return number -> id for the ids that are the plain text of a number that no other id has.

    Examples
    --------
    >>> ids_by_number(["36199", "7", "007", "012", "a1"])
    {36199: '36199'}
    """
    same: dict[float, list[str]] = {}
    for one in ids:
        if _DIGITS.fullmatch(one):
            same.setdefault(int(one), []).append(one)
    return {number: spellings[0] for number, spellings in same.items() if spellings == [str(number)]}


def plain_value(value: Any) -> Any:
    """Return a number or text of numpy, torch or another library as Python's, and any other value unchanged."""
    is_scalar = hasattr(value, "item") and getattr(value, "ndim", 0) == 0
    return value.item() if is_scalar else value


def number_of(value: object) -> float | None:
    """Return the number that stands for an id, from any library; None if `value` is not a number.

    Text such as "36199.0" also counts, because tables are written like this once ids have become floats.

    Examples
    --------
    >>> number_of(36199), number_of("36199.0"), number_of("36199"), number_of(True)
    (36199, 36199, None, None)
    """
    if isinstance(value, str):
        decimal = _DECIMAL.fullmatch(value)
        return int(decimal[1]) if decimal else None
    value = plain_value(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def id_of_number(value: object, numbered: Mapping[float, str]) -> str | None:
    """Return the id in :func:`ids_by_number` for which `value` stands; None if there is none."""
    number = number_of(value)
    return None if number is None else numbered.get(number)


def id_of_path(text: str, known: Mapping[str, object]) -> str | None:
    """Return the only id that a text or a path such as "patient1/study1/view1.jpg" can mean; otherwise None."""
    if text in known:
        return text
    name = text.replace("\\", "/")
    ending = next((ending for ending in _ENDINGS if name.casefold().endswith(ending)), "")
    parts = PurePosixPath(name[: len(name) - len(ending)]).parts
    same = {"_".join(parts[-n:]) for n in range(1, min(len(parts), 4) + 1)} & known.keys()
    return same.pop() if len(same) == 1 else None
