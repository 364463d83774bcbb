"""Parse and check the metadata of a submission: the ``submission.json`` of ``submissions/schema``.

Conventions
-----------
Names (model, version, organization) are normalised to NFKC, and may then contain only certain ASCII characters. This
excludes look-alikes, invisible or right-to-left characters, and characters that start a spreadsheet formula. Other
texts may be in any script, but must not contain control or format characters. Links must be https. Pages escape all
users' texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, ValidationError

from reveal_bench.files import parse_json

KINDS = {
    "multimodal_llm": "multimodal LLM",
    "cnn": "CNN",
    "saliency": "saliency",
    "human_reader": "human reader",
    "other": "other",
}
PROMPT_STYLES = ("zero-shot", "few-shot", "chain-of-thought", "other")
MAX_BYTES = 64 * 1024

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+()/-]{0,63}")
LINK = re.compile(r"https://[A-Za-z0-9.-]+(:[0-9]+)?(/[!-~]*)?")


def _name(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).strip()
    if not NAME.fullmatch(text):
        raise ValueError(
            "must be 1-64 of the characters A-Z a-z 0-9 space . _ + ( ) / - and start with a letter or digit"
        )
    return text


def _plain(text: str) -> str:
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn") and character not in "\n\r\t":
            raise ValueError(f"must not contain control or invisible characters, got U+{ord(character):04X}")
    return text


def _link(text: str) -> str:
    if not LINK.fullmatch(text) or any(c in text for c in "<>\"'`\\"):
        raise ValueError("must be an https:// address")
    return text


Name = Annotated[str, AfterValidator(_name)]
Line = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_plain)]
Text = Annotated[str, Field(min_length=1, max_length=4000), AfterValidator(_plain)]
Link = Annotated[str, Field(max_length=500), AfterValidator(_link)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class _MetadataModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Model(_MetadataModel):
    """The model that made the predictions."""

    name: Name
    version: Name | None = None


class Links(_MetadataModel):
    """Public pages about the system."""

    code: Link | None = None
    paper: Link | None = None
    model: Link | None = None


class TuningRecord(_MetadataModel):
    """The data on which the thresholds were tuned, as ``reveal-bench tune`` writes them."""

    benchmark: Line
    version: Line
    split: Line
    n: Annotated[int, Field(ge=1)]
    criterion: Line
    file: Line
    file_sha256: Line | None = None


class Metadata(_MetadataModel):
    """Content of a ``submission.json``.

    `share_predictions` allows the operators to publish the prediction file; `contact` is for them and never shown.
    """

    model: Model
    organization: Name
    kind: Literal["multimodal_llm", "cnn", "saliency", "human_reader", "other"]
    prompt_style: Literal["zero-shot", "few-shot", "chain-of-thought", "other"] | None = None
    parameters: Annotated[dict[Line, Line | int | float | bool | None], Field(max_length=50)] | None = None
    grid: Annotated[int, Field(ge=1, le=26)] | None = None
    thresholds: Fraction | dict[Line, Fraction] | None = None
    tuning: TuningRecord | None = None
    training_data: Text | None = None
    known_overlap: Text | None = None
    links: Links = Links()
    share_predictions: StrictBool | None = None
    contact: Annotated[str, Field(min_length=1, max_length=254), AfterValidator(_plain)] | None = None

    def check_grid(self, n: int) -> None:
        """Refuse a grid other than the board's, because its cells would be read as the board's cells.

        Raises
        ------
        MetadataError
            If `grid` is present and differs from `n`.
        """
        if self.grid not in (None, n):
            raise MetadataError([_error("grid", f"must be the board's grid, {n} cells per side", str(self.grid))])

    def check_labels(self, labels: Collection[str]) -> None:
        """Refuse thresholds of labels that are not on the board, since they would have no effect.

        Raises
        ------
        MetadataError
            If `thresholds` names a label outside `labels`.
        """
        stated = self.thresholds if isinstance(self.thresholds, dict) else {}
        rule = "must name labels of the board"
        unasked = [_error("thresholds", rule, repr(label)[:80]) for label in stated if label not in labels]
        if unasked:
            raise MetadataError(unasked)


class MetadataError(ValueError):
    """The metadata are invalid; `errors` lists fields, rules and values."""

    def __init__(self, errors: list[dict[str, str]]) -> None:
        super().__init__("; ".join(f"{e['field']}: {e['rule']}" for e in errors))
        self.errors = errors


def read_metadata(text: str) -> Metadata:
    """Parse and check the text of a ``submission.json``.

    Raises
    ------
    MetadataError
        If the text breaks a rule; the error lists every problem.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise MetadataError([_error("metadata", f"must be at most {MAX_BYTES} bytes", "")])
    repeated: list[str] = []
    try:
        fields = parse_json(text, repeated)
        if repeated:
            raise ValueError("each field must occur only once in an object")
        return Metadata.model_validate(fields)
    except ValidationError as error:
        faults = [_fault(fault) for fault in error.errors(include_url=False, include_context=False)]
        raise MetadataError(list({fault["field"]: fault for fault in faults}.values())) from None
    except (ValueError, RecursionError) as error:  # invalid JSON, or a number with thousands of digits
        raise MetadataError([_error("metadata", f"must be JSON: {error}", text[:80])]) from None


CHOICES = {
    "parameters": (2, "must be a text of at most 500 characters, a finite number, true, false or null"),
    "thresholds": (1, "must be a number from 0 to 1, or an object with a number for each label"),
}
"""Field that accepts several types -> (length of its location in pydantic's errors without the name of a type, rule).
"""


def _fault(fault: Any) -> dict[str, str]:
    place, rule = fault["loc"], fault["msg"].removeprefix("Value error, ")
    n, of_all = CHOICES.get(place[0], (len(place), "")) if place else (0, "")
    if len(place) > n and "[key]" not in place:
        place, rule = place[:n], of_all
    elif fault["type"] == "model_type":
        rule = "must be an object"
    return _error(".".join(map(str, place)) or "metadata", rule, repr(fault["input"])[:80])


def _error(field: str, rule: str, value: str) -> dict[str, str]:
    return {"field": field, "rule": rule, "value": value}


def versioned(model: str, version: str) -> str:
    """Return a model's name with its version; a numeric version gets a "v".

    Examples
    --------
    >>> versioned("Net", "2"), versioned("Net", "rc1"), versioned("Net", "")
    ('Net v2', 'Net rc1', 'Net')
    """
    if not version:
        return model
    return f"{model} {'v' if version[0].isdigit() else ''}{version}"
