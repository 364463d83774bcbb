"""The few ways in which a child can fail, and the fixed sentences for them."""

from __future__ import annotations

from typing import Literal

__all__ = ["FailureKind", "ParseFailed", "ScoreFailed"]

FailureKind = Literal["too_large", "timeout", "crashed"]

_SENTENCES: dict[FailureKind, str] = {
    "too_large": "The file needs more memory to read than a check may take. Send it with fewer or smaller masks, or "
    "as JSONL, which is read line by line.",
    "timeout": "The file takes longer to check than a check may take. Send it with fewer or smaller masks or contours.",
    "crashed": "The file could not be read: the check broke off. Run `reveal-bench lint` on it at home to see why, or "
    "write it again as JSONL.",
}


class ParseFailed(Exception):  # noqa: N818 - an outcome among others, not a fault of ours
    """The check of an upload did not end with a report; `kind` says how, ``str()`` is fixed for each kind."""

    def __init__(self, kind: FailureKind) -> None:
        self.kind: FailureKind = kind
        super().__init__(_SENTENCES[kind])


class ScoreFailed(Exception):  # noqa: N818
    """Scoring, ranking or comparing did not end with a result.

    ``str()`` is always the same. `kind` and `detail` (a traceback, or how the child died) are for the vault alone: they
    may depend on references.
    """

    def __init__(self, kind: FailureKind, detail: str = "") -> None:
        self.kind: FailureKind = kind
        self.detail = detail
        super().__init__("Scoring stopped on our side.")
