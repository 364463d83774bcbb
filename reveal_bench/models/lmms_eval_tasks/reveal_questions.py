"""Functions with which lmms-eval asks the questions in `questions.parquet` and `pictures/`, in this file's folder.

`reveal_bench.models.lmms` copies this file into an export, where lmms-eval runs it. The file therefore needs Pillow,
but no part of reveal-bench. No function has the correct answers, so replies are counted but not scored.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).resolve().parent / "pictures"
FAILURE = "[LMMS_EVAL_"
"""Beginning of the text that lmms-eval stores for a missing reply."""
NO_TEXT = 'Error: can only concatenate str (not "NoneType") to str'
"""Text that lmms-eval's backend async_openai stores for a reply without text."""


def doc_to_messages(doc: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the conversation of a question, with its examples, in the format of lmms-eval's chat models.

    Raises
    ------
    ValueError
        If a picture differs from the exported one.
    """
    return [
        {"role": message["role"], "content": [_content(part) for part in message["content"]]}
        for message in json.loads(doc["messages"])
    ]


def doc_to_text(doc: Mapping[str, Any]) -> str:
    """Return the text of a question's last message, which lmms-eval shows and uses as a cache key, but never sends."""
    last = json.loads(doc["messages"])[-1]
    return "\n".join(part["text"] for part in last["content"] if part["type"] == "text")


def doc_to_visual(doc: Mapping[str, Any]) -> list[Any]:
    """Refuse lmms-eval's models that accept pictures and a single text, because they would get another prompt.

    Raises
    ------
    ValueError
        Always.
    """
    raise ValueError(
        "the questions of reveal-bench are conversations: they need a chat model of lmms-eval, such as vllm, "
        "huggingface, sglang, qwen2_5_vl or openai, and no --force_simple"
    )


def doc_to_target(doc: Mapping[str, Any]) -> str:
    """Return the digest of the messages sent and the question's id, which identify a sample; this is not an answer."""
    return f"{doc['sent']} {doc['id']}"


def process_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, Any]:
    """Return the proportions of answered and failed replies, which lmms-eval averages, and each reply's status."""
    came = [_came(reply) for reply in results]
    return {
        "reveal_answered": came.count("answered") / len(came),
        "reveal_failed": came.count("failed") / len(came),
        "reveal": {"replies": came, "lmms_eval": _own_version()},
    }


def _content(part: Mapping[str, str]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": part["text"]}
    from PIL import Image

    path = PICTURES / f"{part['sha256']}.png"
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != part["sha256"]:
        raise ValueError(f"{path} is not the picture that was exported: export the questions again")
    picture = Image.open(io.BytesIO(data))
    picture.load()
    return {"type": "image", "url": picture}


def _came(reply: str) -> str:
    if reply.startswith(FAILURE):
        return "failed"
    return "answered" if reply.strip() not in ("", NO_TEXT) else "empty"


@lru_cache(maxsize=1)
def _own_version() -> str:
    try:
        return version("lmms-eval")
    except PackageNotFoundError:
        return "unknown"
