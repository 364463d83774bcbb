"""Define the conventions for coordinates in a model's answers: their unit and order, and which model uses which.

Conventions
-----------
A model trained on positions in one unit keeps using this unit, whatever the prompt says. Therefore a run states the
convention in which it asks and reads: one of :data:`CONVENTIONS`, or ``pixels-N`` for pixels of the image resized to a
long side of N, because some models see images so. A box is x, y, width and height, or two *corners*: the top left one,
then the bottom right one. With "y first", every pair is reversed: y before x, and height before width.

:mod:`reveal_bench.models.calibration` determines the convention of a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reveal_bench.arguments import ArgumentError

AUTO = "auto"
"""Name for the model's own convention while that is unknown."""
SMALLEST, LARGEST = 16, 20_000
"""Smallest and largest N in ``pixels-N``."""


@dataclass(frozen=True, slots=True)
class Convention:
    """The meaning of the numbers in an answer.

    Attributes
    ----------
    words : its wording in a prompt
    full : the number that means the full width or height of the image; None for pixels
    long_side : for pixels, the long side of the image that they count in; None for the image as it was sent
    decimals : number of decimals in examples
    y_first : True if y comes before x
    """

    words: str
    full: float | None = None
    long_side: int | None = None
    decimals: int = 0
    y_first: bool = False

    def pixels_of(self, size: tuple[int, int]) -> tuple[float, float]:
        """Return the number of pixels in one unit along x and along y of an image of `size` (height, width).

        Examples
        --------
        >>> CONVENTIONS["percent"].pixels_of((200, 400)), convention("pixels-800").pixels_of((200, 400))
        ((4.0, 2.0), (0.5, 0.5))
        """
        height, width = size
        if self.full is not None:
            return width / self.full, height / self.full
        scale = 1.0 if self.long_side is None else max(size) / self.long_side
        return scale, scale

    def names(self, form: str, *, corners: bool) -> tuple[str, ...]:
        """Return the names of the numbers of a point or box, in order.

        Examples
        --------
        >>> CONVENTIONS["thousandths-yx"].names("box", corners=True)
        ('y1', 'x1', 'y2', 'x2')
        """
        plain = ("x", "y") if form == "point" else ("x1", "y1", "x2", "y2") if corners else ("x", "y", "w", "h")
        return tuple(self._ordered(plain))

    def written(self, place: Sequence[float], size: tuple[int, int], *, corners: bool) -> tuple[str, ...]:
        """Return the numbers that state a point [x, y] or box [x, y, width, height], in pixels of an image of `size`.

        Examples
        --------
        >>> CONVENTIONS["thousandths-yx"].written((10, 20, 30, 40), (200, 100), corners=True)
        ('100', '100', '300', '400')
        """
        values = [*place[:2], place[0] + place[2], place[1] + place[3]] if corners and len(place) == 4 else list(place)
        units = self.pixels_of(size) * 2
        numbers = [f"{value / unit:.{self.decimals}f}" for value, unit in zip(values, units, strict=False)]
        return tuple(self._ordered(numbers))

    def _ordered(self, values: Sequence[str]) -> Sequence[str]:
        if not self.y_first:
            return values
        return [value for pair in zip(values[1::2], values[::2], strict=True) for value in pair]


_PIXELS = "x counts pixels from its left edge and y from its top edge, both from 0"
_SHARES = "x counts {unit} of its width from its left edge and y {unit} of its height from its top edge"
CONVENTIONS: Mapping[str, Convention] = {
    "pixels": Convention(_PIXELS),
    "fractions": Convention(_SHARES.format(unit="fractions") + ", both from 0 to 1", 1, decimals=3),
    "percent": Convention(_SHARES.format(unit="percent") + ", both from 0 to 100", 100, decimals=1),
    "thousandths-xy": Convention(_SHARES.format(unit="thousandths") + ", both from 0 to 1000", 1000),
    "thousandths-yx": Convention(
        "y counts thousandths of its height from its top edge and x thousandths of its width from its left edge, both "
        "from 0 to 1000; y always comes before x",
        1000,
        y_first=True,
    ),
}
"""Name -> convention, in the order in which a calibration tries the conventions."""


def convention(name: str) -> Convention:
    """Return the convention called `name`.

    Raises
    ------
    ValueError
        If the name is unknown; :data:`AUTO` is not a convention.

    Examples
    --------
    >>> convention("pixels-800").long_side, convention("fractions").full
    (800, 1)
    """
    if name in CONVENTIONS:
        return CONVENTIONS[name]
    resized = re.fullmatch(r"pixels-([1-9][0-9]{1,4})", name)
    if resized is None or not SMALLEST <= int(resized[1]) <= LARGEST:
        known = f"{', '.join(CONVENTIONS)}, or pixels-N with the long side N in [{SMALLEST}, {LARGEST}]"
        raise ArgumentError("coordinates", f"must be one of {known}", repr(name))
    return Convention(_PIXELS, long_side=int(resized[1]))


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A family of models, the convention on which it was trained, and the source of this information.

    `pattern` is searched in the lower-case name of a model; `corners` is True if the models give boxes as corners, and
    None if they give only points.
    """

    family: str
    pattern: str
    coordinates: str
    corners: bool | None
    source: str

    def names(self, coordinates: str) -> bool:
        """Return True if `coordinates` is the family's convention, in pixels of a picture of any size for "pixels-N".

        Examples
        --------
        >>> known_model("qwen2.5-vl-7b").names("pixels-1024"), known_model("glm-4.5v").names("percent")
        (True, False)
        """
        return coordinates == self.coordinates or (self.coordinates == "pixels-N" and coordinates.startswith("pixels-"))


_QWEN = "https://github.com/QwenLM/Qwen3-VL/issues/"
KNOWN_MODELS: tuple[KnownModel, ...] = (
    KnownModel(
        "Gemini",
        r"gemini",
        "thousandths-yx",
        True,
        "https://docs.cloud.google.com/vertex-ai/generative-ai/docs/bounding-box-detection",
    ),
    KnownModel("Qwen2.5-VL", r"qwen-?2\.5-?vl", "pixels-N", True, f"{_QWEN}676"),
    KnownModel("Qwen2-VL", r"qwen-?2-?vl", "thousandths-xy", True, f"{_QWEN}866"),
    KnownModel("Qwen3-VL", r"qwen-?3-?vl", "thousandths-xy", True, f"{_QWEN}1741"),
    KnownModel("Molmo", r"molmo(?!-?2|point)", "percent", None, "https://github.com/abhaybd/GraspMolmo/issues/2"),
    KnownModel("Kimi-VL", r"kimi-?vl", "fractions", True, "https://github.com/MoonshotAI/Kimi-VL/issues/56"),
    KnownModel(
        "DeepSeek-VL2",
        r"deepseek-?vl-?2",
        "thousandths-xy",
        True,
        "https://github.com/deepseek-ai/DeepSeek-VL2/issues/100",
    ),
    KnownModel(
        "MiniCPM-V 4.5",
        r"minicpm-?v-?4[._]5",
        "thousandths-xy",
        True,
        "https://github.com/OpenBMB/MiniCPM-V/issues/982",
    ),
    KnownModel(
        "GLM-4.1V and later", r"glm-?4\.[1-9]v", "thousandths-xy", True, "https://github.com/zai-org/GLM-V/issues/114"
    ),
    KnownModel("InternVL", r"internvl", "thousandths-xy", True, "https://github.com/OpenGVLab/InternVL/issues/285"),
    KnownModel("CogVLM", r"cogvlm", "thousandths-xy", True, "https://github.com/zai-org/CogVLM/issues/46"),
)
"""Families of models; the first match applies.

DeepSeek-VL2 divides by 999 instead of 1000, a difference of a thousandth.
"""


def known_model(model: str) -> KnownModel | None:
    """Return the family of a model by the model's name; None if no family matches.

    Examples
    --------
    >>> known_model("google/gemini-2.5-pro").coordinates, known_model("Qwen/Qwen2.5-VL-7B-Instruct").family
    ('thousandths-yx', 'Qwen2.5-VL')
    """
    return next((known for known in KNOWN_MODELS if re.search(known.pattern, model.lower())), None)
