"""What a model answered, kept by what it was asked, so that nothing is asked and paid for twice.

Conventions
-----------
The key of an answer is the SHA-256 of the request's body: model, messages, schema and settings, but neither endpoint
nor key. An answer is one file, which appears whole or not at all; it holds what came back, not the question, and no
time. What a reader of answers makes of it is not kept: another parser reads the same answers anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

__all__ = ["Answer", "AnswerCache", "content_key"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said; `finish` is why it ended, `refusal` its words if it would not answer.

    `tokens_in` and `tokens_out` are the endpoint's own count, None if it sends none; `served_model` is the name that
    it answers with, often more exact than the one that was asked for.
    """

    text: str
    finish: str | None = None
    refusal: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    served_model: str | None = None

    @property
    def fault(self) -> str | None:
        """Why the text is not to be read at all, None if it may be."""
        if self.refusal:
            return f"the model would not answer: {self.refusal[:200]}"
        if self.finish == "length":
            return "the answer was cut off at the largest number of tokens"
        if self.finish == "content_filter":
            return "the answer was held back by a content filter"
        return None


def content_key(body: Mapping[str, Any]) -> str:
    """The key of a request's body: its keys' order does not matter, everything else does."""
    text = json.dumps(body, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


class AnswerCache:
    """Answers below `root`, which is made when the first is kept."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def find(self, key: str) -> Answer | None:
        """The answer of this key; None if there is none, or one that is damaged, which costs one more request."""
        try:
            document = json.loads(self._path(key).read_text(encoding="utf-8"))
            return Answer(**document["answer"]) if document["key"] == key else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def keep(self, key: str, answer: Answer) -> None:
        """Keep an answer, whole or not at all."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{key}.{os.getpid()}.new")
        with new.open("w", encoding="utf-8") as file:
            json.dump({"key": key, "answer": asdict(answer)}, file, ensure_ascii=True, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / f"{key}.json"
