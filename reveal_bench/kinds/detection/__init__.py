"""Detection: where findings are on an image and how sure that is, where false alarms count. A row is an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from reveal_bench.kinds.localization import Localization

if TYPE_CHECKING:
    from reveal_bench.kinds.localization.records import LocalizationRecord
    from reveal_bench.kinds.rows import Row

__all__ = ["Detection"]


class Detection(Localization):
    """Boxes, masks and points with scores, of every finding on every image.

    Its datasets have the rows of localization, with a box for each instance that is drawn.
    """

    name: ClassVar = "detection"
    config: ClassVar = "detection"
    question: ClassVar = (
        "Which findings does a chest radiograph show, and where? Answers are boxes, masks or points with scores; what "
        "is marked where nothing is counts against a model."
    )

    def asked_of(self, row: Row, findings: Sequence[str], asks: str) -> list[str]:
        """All findings."""
        return list(findings)

    def read_records(self, folder: Path, split: str) -> list[LocalizationRecord]:
        """The images of `split` with their references."""
        from reveal_bench.kinds.localization.records import read_localization

        return read_localization(folder, split, config=self.config)

    def read_references(self, folder: Path, split: str) -> list[LocalizationRecord]:
        """The images of `split` with their references, without contours."""
        from reveal_bench.kinds.localization.records import read_localization

        return read_localization(folder, split, config=self.config, contours=False)
