"""What a build reports besides its folders, and the part of it that the dataset folder keeps.

``manifest/films.json`` lists the notes on films, and counts, by reason, what was left out. The folder may be published,
so the file names only images of the dataset, and its texts come from a closed list (:func:`public_text`); values and
names of files are in the log of the command::

    {"notes": {"voi window 1 of 1 LINEAR: every pixel is black, so it uses the full range": ["image-3"]},
     "faults": {"every pixel is white": ["image-7"]},
     "left_out": {"unreadable picture": 2, "problem of labels": 1}}
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from reveal_bench.dataset.balance import Balance
from reveal_bench.dicom.header import OTHER_PARTS
from reveal_bench.files import FILMS
from reveal_bench.sources.source import Problem

_N = r"\d[\d,.]{,8}"
_WAY = (
    rf"(voi (lut|window) {_N} of {_N}( LINEAR_EXACT| LINEAR| SIGMOID)?|full range"
    "|range of (98% of )?the picture's values)"
)
_FAULT = (
    rf"(every pixel is (black|white|grey level {_N})|{_N}% of the pixels are black or white"
    rf"|98% of the pixels are between grey levels {_N} and {_N} of 255)"
)
_LISTED = (
    rf"{_WAY}: {_FAULT}, (so it uses the {_WAY}|and no other way shows more)", _FAULT,
    rf"{_WAY} is unusable(: (WindowWidth must be (at least 1 for LINEAR|above 0)|Window(Center|Width) must be a number"
    "|only one of WindowCenter and WindowWidth is given|VOILUTFunction must be one of LINEAR, LINEAR_EXACT, SIGMOID"
    "|VOILUTSequence (must have entries of 8 to 16 bits|has no usable LUT(Data|Descriptor))))?",
    rf"uses {_N} bits, as in the compressed picture, instead of BitsStored {_N}",
    rf"{_N} pixels have values beyond BitsStored \({_N}\), whose higher bits are ignored",
    rf"VOILUTSequence only reaches {_N} of {_N}, so the picture is dark",
    "no usable VOI LUT or window, so the full range of the stored bits is shown",
    "FOR PROCESSING: raw detector values, not yet processed for display",
    "HighBit is missing, so BitsStored - 1 is used",
    "PresentationLUTShape contradicts MONOCHROME[12] and is ignored: (not )?inverted",
    "only one of RescaleSlope and RescaleIntercept is given, so neither is applied",
    rf"BodyPartExamined is (an unlisted value|{'|'.join(OTHER_PARTS)}), not CHEST; it is often wrong",
    "the view is (AP|PA|LATERAL), but its codes or the orientation say (AP|PA|LATERAL)",
    "the view is unknown: no known ViewPosition, code or orientation",
    "unreadable (file|picture)",
    "problem of (file|picture|record|study|images?|labels|PatientID|StudyInstanceUID|SOPInstanceUID|BurnedInAnnotation"
    "|PatientIdentityRemoved)",
    "set aside: (duplicate|localizer|derived secondary picture|a colour picture|no pixel data|no picture|a DICOMDIR"
    "|a secondary capture|a presentation state|a structured report or key object selection|an encapsulated document"
    "|the SOP class is not that of a radiograph|the modality is neither CR nor DX|a link that leads out of the folder"
    "|named by the maintainer|interrupted download|a model's masks|pickled heat map|heat map of a model)",
)  # fmt: skip
_PUBLIC = re.compile("|".join(_LISTED))
OTHER = "other, see the log of the build"


@dataclass(frozen=True, slots=True)
class FilmNote:
    """Notes on a picture of a dataset.

    Attributes
    ----------
    file : path relative to the download
    key : key of the picture's record
    image_id : id of the image
    warnings : notes on the file's header and display settings
    fault : what is wrong with the contrast, such as "every pixel is black"; "" if nothing
    """

    file: str
    key: str
    image_id: str
    warnings: tuple[str, ...]
    fault: str


@dataclass
class BuildLog:
    """Results of a build other than its folders.

    Attributes
    ----------
    set_aside, not_read : what the source left out: the attributes `set_aside` and `left_out` of
        :class:`~reveal_bench.sources.source.SourceData`
    left_out : problems of records that were left out, and of pictures that were left out of their records
    films : notes on pictures, such as a display window that showed nothing
    resumed : number of records whose rows an earlier, interrupted run had made
    balance : similarity of the halves, if the build has a holdout
    shared : sentences about other benchmarks that also hold out some of the cases
    """

    set_aside: Sequence[tuple[str, str]] = ()
    not_read: Sequence[Problem] = ()
    left_out: list[Problem] = field(default_factory=list)
    films: list[FilmNote] = field(default_factory=list)
    resumed: int = 0
    balance: Balance | None = None
    shared: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class FilmRecord:
    """Content of ``manifest/films.json``.

    Attributes
    ----------
    notes, faults : dict from a note, and from a fault of the contrast, to the ids of its images
    left_out : dict from reason to number of files or records
    """

    notes: Mapping[str, Sequence[str]]
    faults: Mapping[str, Sequence[str]]
    left_out: Mapping[str, int]

    @classmethod
    def of(cls, log: BuildLog) -> FilmRecord:
        """Return the part of a build's results that its folder keeps."""
        notes = [(public_text(text), film.image_id) for film in log.films for text in film.warnings]
        faults = [(public_text(film.fault), film.image_id) for film in log.films if film.fault]
        reasons = Counter(map(_reason, (*log.not_read, *log.left_out)))
        reasons += Counter(public_text(f"set aside: {reason}") for _, reason in log.set_aside)
        return cls(_sorted(notes), _sorted(faults), dict(sorted(reasons.items())))

    def to_json(self) -> str:
        """Return the file's text."""
        return json.dumps(asdict(self), indent=1) + "\n"


def _sorted(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for text, image_id in sorted(set(pairs)):
        ids.setdefault(text, []).append(image_id)
    return ids


def _reason(problem: Problem) -> str:
    what = "unreadable" if problem.rule.startswith("must be readable") else "problem of"
    return public_text(f"{what} {problem.field}")


def public_text(text: str) -> str:
    """Return the start of a note or reason that is in the closed list, without the value that follows.

    Examples
    --------
    >>> public_text("voi window 1 of 1 is unusable: WindowCenter must be a number, got 'Doe'")
    'voi window 1 of 1 is unusable: WindowCenter must be a number'
    >>> public_text("set aside: duplicate of doe/1.dcm: the same pixels in the same study")
    'set aside: duplicate'
    >>> public_text("no such file: doe/2.dcm")
    'other, see the log of the build'
    """
    known = _PUBLIC.match(text)
    return known[0] if known else OTHER


def film_record_problems(folder: Path, image_ids: Collection[str]) -> Iterator[Problem]:
    """Yield a problem if the record is malformed, has an unlisted text, or names no image of the folder."""
    try:
        record = FilmRecord(**json.loads((folder / FILMS).read_text(encoding="utf-8")))
        texts = {**record.notes, **record.faults, **record.left_out}
        named = {image_id for ids in (*record.notes.values(), *record.faults.values()) for image_id in ids}
        sum(record.left_out.values())
    except FileNotFoundError:
        return
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        yield Problem(FILMS, None, "file", "must be the record of a build", type(error).__name__)
        return
    for text in sorted(text for text in texts if public_text(text) != text):
        yield Problem(FILMS, None, "reason", "must be a text of `build`, without a value or a file", text)
    for image_id in sorted(map(str, named - set(image_ids))):
        yield Problem(FILMS, None, "image_id", "must be an image of the dataset", image_id)
