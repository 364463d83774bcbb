"""The form about the model on the page Submit: its fields, filling them from a ``submission.json``, reading them back.

What a ``submission.json`` says beyond the fields of the form (parameters, thresholds, the grid, a contact) is kept and
sent along; the page names it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from reveal_leaderboard.metadata import KINDS, PROMPT_STYLES, Metadata, MetadataError, read_metadata
from reveal_leaderboard.pages.drawing import message, text

__all__ = ["FIELDS", "MORE", "build_form", "metadata_view", "read_file", "read_form", "values_of"]

FIELDS = {
    "model.name": "Model name",
    "model.version": "Version",
    "organization": "Organization",
    "kind": "Kind",
    "prompt_style": "Prompt style",
    "links.code": "Code",
    "links.paper": "Paper",
    "links.model": "Model page",
    "training_data": "Training data",
    "known_overlap": "Known overlap",
}
"""Fields of the form in order, as ``submission.json`` names them, with their labels."""

MORE = ("parameters", "grid", "thresholds", "contact")
"""What the file may hold besides; it is sent along."""

NO_PROMPT = "none (not prompted)"
MAX_FILE_BYTES = 64 * 1024


def build_form(*, any_organization: bool) -> list[gr.components.Component]:
    """The fields, in the order of `FIELDS`.

    Parameters
    ----------
    any_organization : whether a name may be typed that is none of the listed teams (the single user of local mode)
    """
    with gr.Row():
        name = gr.Textbox(label="Model name", placeholder="as shown on the board", max_length=64, min_width=170)
        version = gr.Textbox(label="Version (optional)", placeholder="2026-11-21", max_length=64, min_width=130)
    organization = gr.Dropdown(
        [], label="Organization", info="one of your teams", allow_custom_value=any_organization, min_width=170
    )
    with gr.Row():
        kinds = [(label, key) for key, label in KINDS.items()]
        kind = gr.Dropdown(kinds, value="multimodal_llm", label="Kind", min_width=190)
        style = gr.Dropdown([NO_PROMPT, *PROMPT_STYLES], value="zero-shot", label="Prompt style", min_width=190)
    with gr.Accordion("Links and training data (optional)", open=False):
        code = gr.Textbox(label="Code", placeholder="https://…", max_length=500)
        paper = gr.Textbox(label="Paper", placeholder="https://…", max_length=500)
        model = gr.Textbox(label="Model page", placeholder="https://…", max_length=500)
        training = gr.Textbox(label="Training data", lines=2, max_length=4000)
        overlap = gr.Textbox(label="Known overlap with the benchmark", lines=2, max_length=4000)
    return [name, version, organization, kind, style, code, paper, model, training, overlap]


def read_file(path: Path) -> Metadata:
    """A dropped ``submission.json``.

    Raises
    ------
    MetadataError
        If it is too large, is no UTF-8 text, or breaks a rule.
    """
    with path.open("rb") as stream:
        raw = stream.read(MAX_FILE_BYTES + 1)
    try:
        return read_metadata(raw.decode("utf-8"))
    except UnicodeDecodeError:
        fault = {"field": "metadata", "rule": "must be UTF-8 text", "value": ""}
        raise MetadataError([fault]) from None


def values_of(metadata: Metadata) -> tuple[list[str | None], dict[str, Any]]:
    """The values of the form's fields, and what the file holds besides."""
    document = metadata.model_dump(exclude_none=True)
    values: list[str | None] = []
    for field in FIELDS:
        value: Any = document
        for step in field.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        values.append(NO_PROMPT if field == "prompt_style" and value is None else value)
    return values, {name: document[name] for name in MORE if name in document}


def read_form(form: Sequence[str | None], more: Mapping[str, Any]) -> Metadata:
    """The form's fields as metadata, checked.

    Raises
    ------
    MetadataError
        With every fault found.
    """
    given = dict(zip(FIELDS, (value or None for value in form), strict=True))
    style = given["prompt_style"]
    document = {
        "model": {"name": given["model.name"] or "", "version": given["model.version"]},
        "organization": given["organization"] or "",
        "kind": given["kind"],
        "prompt_style": None if style == NO_PROMPT else style,
        "links": {name: given[f"links.{name}"] for name in ("code", "paper", "model")},
        "training_data": given["training_data"],
        "known_overlap": given["known_overlap"],
        **{name: more[name] for name in MORE if name in more},
    }
    return read_metadata(json.dumps(document))


def metadata_view(problem: MetadataError, title: str = "Not sent: something about the model is not right.") -> str:
    """Every fault of the metadata, by the names that the form's labels have."""
    items = "".join(
        f"<li><b>{text(FIELDS.get(error['field'], error['field']))}</b>: {text(error['rule'])}"
        f"{_got(error.get('value', ''))}</li>"
        for error in problem.errors
    )
    return message("bad", title, markup=f"<ul>{items}</ul>")


def _got(value: str) -> str:
    return f", got <code>{text(value)}</code>" if value and value not in ("''", "None") else ""
