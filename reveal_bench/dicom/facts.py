"""Reading single values of a data set tolerantly: a value of the wrong kind is no value, and nothing ever raises.

Text is decoded from the raw bytes, so pydicom's conversions (which stop at a decimal string of letters) play no part.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydicom import Dataset

__all__ = ["Facts"]

_LONGEST = 64
"""Characters of the longest value of the representations read here (LO, UI)."""

_TEXT_VRS = {
    "AE", "AS", "CS", "DA", "DS", "DT", "IS", "LO", "LT", "PN", "SH", "ST", "TM", "UC", "UI", "UR", "UT",
}  # fmt: skip


class Facts:
    """The values of `dataset`, by keyword."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def texts(self, keyword: str) -> list[str]:
        """All values as text, without padding; [] if absent or empty. Overlong and unprintable values are empty."""
        values = [str(value).strip(" \0") for value in self._values(keyword)]
        values = [value if len(value) <= _LONGEST and value.isprintable() else "" for value in values]
        return values if any(values) else []

    def text(self, keyword: str) -> str | None:
        """The value as text; None if absent, empty or one of several."""
        values = self.texts(keyword)
        return values[0] if len(values) == 1 else None

    def word(self, keyword: str) -> str | None:
        """The value in capitals."""
        text = self.text(keyword)
        return text.upper() if text else None

    def numbers(self, keyword: str) -> list[float]:
        """All values as finite numbers; [] if absent or one is no number."""
        try:
            numbers = [float(text) for text in self.texts(keyword)]
        except ValueError:
            return []
        return numbers if all(map(math.isfinite, numbers)) else []

    def positive(self, keyword: str) -> float | None:
        """The value if it is one number above 0."""
        numbers = self.numbers(keyword)
        return numbers[0] if len(numbers) == 1 and numbers[0] > 0 else None

    def integer(self, keyword: str) -> int | None:
        """The value if it is one whole number."""
        numbers = self.numbers(keyword)
        return int(numbers[0]) if len(numbers) == 1 and numbers[0] == int(numbers[0]) else None

    def yes_or_no(self, keyword: str) -> bool | None:
        """True for YES, False for NO, None for all else."""
        return {"YES": True, "NO": False}.get(self.word(keyword) or "")

    def items(self, sequence: str, keyword: str) -> list[str]:
        """The value of `keyword` in every item of a sequence that has one."""
        try:
            found = [Facts(item).text(keyword) for item in self._dataset.get(sequence) or ()]
        except Exception:  # a damaged sequence, or one that is none
            return []
        return [text for text in found if text]

    def _values(self, keyword: str) -> list[Any]:
        from pydicom.datadict import dictionary_VR
        from pydicom.dataelem import RawDataElement

        try:
            element = self._dataset.get_item(keyword)
            if isinstance(element, RawDataElement):
                vr = dictionary_VR(element.tag) if element.VR in (None, "UN") else element.VR
                if vr in _TEXT_VRS:
                    return _decoded(element.value or b"").split("\\")
            value = self._dataset[keyword].value
        except Exception:  # absent, damaged, or in no representation of its kind
            return []
        if value is None or isinstance(value, bytes):
            return []
        return list(value) if isinstance(value, list | tuple) or hasattr(value, "append") else [value]


def _decoded(data: bytes) -> str:
    """UTF-8 or else Latin-1: the facts read here are ASCII but for a maker's name."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
