"""Other people's spellings -> one word: radiographic views, manufacturers, models.

Views are matched against exact lists, never by parts of words: a lateral decubitus film is no lateral view, an oblique
one is neither AP nor PA. Codes of views are those of DICOM PS3.16 CID 4010, in SNOMED CT and in its older SRT form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["canonical_manufacturer", "canonical_model", "canonical_view"]

VIEWS = ("AP", "PA", "LATERAL", "UNKNOWN")

_SPELLINGS = {
    "AP": ("AP", "A P", "ANTERO POSTERIOR", "ANTEROPOSTERIOR", "ANTERIOR POSTERIOR"),
    "PA": ("PA", "P A", "POSTERO ANTERIOR", "POSTEROANTERIOR", "POSTERIOR ANTERIOR"),
    "LATERAL": ("LATERAL", "LAT", "LL", "RL", "LEFT LATERAL", "RIGHT LATERAL", "L LAT", "R LAT", "LARGE LATERAL"),
}
_CODES = {
    "AP": ("399348003", "R-10206"),
    "PA": ("272479007", "R-10214", "R-40888"),
    "LATERAL": ("399067008", "R-102CD", "399173006", "R-10236", "399198007", "R-10232"),
}
_VIEW_OF_SPELLING = {spelling: view for view, spellings in _SPELLINGS.items() for spelling in spellings}
_VIEW_OF_CODE = {code: view for view, codes in _CODES.items() for code in codes}

_HOUSES = {
    "AGFA": "AGFA",
    "CANON": "CANON",
    "CARESTREAM": "CARESTREAM",
    "EASTMAN": "KODAK",
    "FUJI": "FUJIFILM",
    "FUJIFILM": "FUJIFILM",
    "GE": "GE",
    "HOLOGIC": "HOLOGIC",
    "KODAK": "KODAK",
    "KONICA": "KONICA MINOLTA",
    "PHILIPS": "PHILIPS",
    "SAMSUNG": "SAMSUNG",
    "SHIMADZU": "SHIMADZU",
    "SIEMENS": "SIEMENS",
    "TOSHIBA": "TOSHIBA",
    "VAREX": "VAREX",
    "VARIAN": "VARIAN",
}
"""First word of a manufacturer's name -> the house. Successors stay apart: a KODAK detector is not renamed."""

_COMPANY_WORDS = {
    "AG", "AS", "BV", "CO", "COMPANY", "CORP", "CORPORATION", "ELECTRONICS", "GMBH", "GROUP", "HEALTH", "HEALTHCARE",
    "HEALTHINEERS", "IMAGING", "INC", "KG", "LIMITED", "LLC", "LTD", "MEDICAL", "NV", "SA", "SAS", "SPA", "SRL",
    "SYSTEM", "SYSTEMS", "TECHNOLOGIES", "TECHNOLOGY",
}  # fmt: skip


def canonical_view(position: str | None, codes: Sequence[str] = (), orientation: Sequence[str] = ()) -> str:
    """The view: ``AP``, ``PA``, ``LATERAL`` or ``UNKNOWN``.

    Parameters
    ----------
    position : str or None
        ViewPosition as it stands. If it is one of the known spellings it decides.
    codes : sequence of str
        Code values of ViewCodeSequence; they decide next, if they all mean one view.
    orientation : sequence of str
        PatientOrientation, (direction of rows, direction of columns). It decides last and only for a lateral view, and
        only where the position is empty: rows that run from back to front (``A``, ``P``) and columns that run along
        the body. Of a frontal film it cannot tell AP from PA.

    Examples
    --------
    >>> canonical_view("Postero Anterior"), canonical_view("LL"), canonical_view("LLD"), canonical_view("")
    ('PA', 'LATERAL', 'UNKNOWN', 'UNKNOWN')
    >>> canonical_view("", codes=["R-10206"]), canonical_view("", orientation=["A", "F"])
    ('AP', 'LATERAL')
    """
    words = _words(position or "")
    if words in _VIEW_OF_SPELLING:
        return _VIEW_OF_SPELLING[words]
    coded = {_VIEW_OF_CODE.get(code, "UNKNOWN") for code in codes}
    if len(coded) == 1:
        return coded.pop()
    is_lateral = not coded and not words and len(orientation) == 2
    return "LATERAL" if is_lateral and orientation[0] in ("A", "P") and orientation[1] in ("F", "H") else "UNKNOWN"


def canonical_manufacturer(raw: str | None) -> str | None:
    """The manufacturer's house name in capitals, without company forms; None if nothing is given.

    Examples
    --------
    >>> canonical_manufacturer("Carestream Health"), canonical_manufacturer("CARESTREAM")
    ('CARESTREAM', 'CARESTREAM')
    >>> canonical_manufacturer("FUJI PHOTO FILM Co., ltd."), canonical_manufacturer("Acme Imaging Systems, Inc.")
    ('FUJIFILM', 'ACME')
    """
    words = _words(raw or "").split()
    if not words:
        return None
    if words[:2] == ["GENERAL", "ELECTRIC"]:
        return "GE"
    if words[0] in _HOUSES:
        return _HOUSES[words[0]]
    while len(words) > 1 and words[-1] in _COMPANY_WORDS:
        words.pop()
    return " ".join(words)


def canonical_model(raw: str | None) -> str | None:
    """The model's name in capitals, quotation marks out, spaces single; None if nothing is given.

    Examples
    --------
    >>> canonical_model('"DRX-Revolution" ')
    'DRX-REVOLUTION'
    """
    return " ".join((raw or "").replace('"', " ").upper().split()) or None


def _words(text: str) -> str:
    """Capital words with single spaces; punctuation and underscores separate."""
    return " ".join(re.sub(r"[^\w&]|_", " ", text.upper()).split())
