"""One study written as a plain table, for iMRMC, for iMRMC's R package and for RJafroc gives one result."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import reveal_bench as rb
from reveal_bench.reader_studies.study import ReaderStudy
from tests.reader_studies.studies import drawn


def readings(study: ReaderStudy) -> list[tuple[str, str, str, float, int]]:
    """Reader, case, modality, score and truth; the cases are numbers, as RJafroc needs them."""
    return [
        (study.readers[r], str(c + 1), study.modalities[t], float(score), int(study.truth[c]))
        for (t, r, c), score in np.ndenumerate(study.scores)
    ]


def imrmc(study: ReaderStudy, path: Path, truth: str = "-1", start: str = "N0: 20\n\nBEGIN DATA:\n") -> None:
    """The format of iMRMC's user manual, section 4.1.1: truth rows may be anywhere."""
    lines = [f"{reader},{case},{modality},{score:f}" for reader, case, modality, score, _ in readings(study)]
    lines += [f"{truth},{c + 1},{'truth' if truth == 'truth' else 0},{value}" for c, value in enumerate(study.truth)]
    path.write_text(start + "\n".join(lines) + "\n", encoding="utf-8")


def r_table(study: ReaderStudy, path: Path) -> None:
    """With the quotation marks that R's `write.csv` adds."""
    imrmc(study, path, "truth", '"readerID","caseID","modalityID","score"\n')


def jafroc(study: ReaderStudy, path: Path, names: tuple[str, str] = ("FP", "TP"), **extra: Any) -> None:
    """RJafroc's workbook for ROC data: one rating of each case by each reader, by the truth of the case."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Truth"
    sheet.append(["CaseID", "LesionID", "Weight", "ReaderID", "ModalityID", "Paradigm"])
    for c, value in enumerate(study.truth.tolist()):
        sheet.append([c + 1, value, value, "0,1", "0,1", ("ROC", "FCTRL")[c] if c < 2 else None])
    for truth, name in enumerate(names):
        sheet = book.create_sheet(name)
        sheet.append(["ReaderID", "ModalityID", "CaseID", *["LesionID"] * truth, f"{name}_Rating"])
        for reader, case, modality, score, own in readings(study):
            if own == truth:
                sheet.append([reader, modality, int(case), *[1] * truth, score])
        for row in extra.get(name, ()):
            sheet.append(row)
    book.save(path)


FORMS: dict[str, tuple[str, Callable[..., None]]] = {
    "iMRMC": ("study.imrmc", imrmc),
    "the table of iMRMC's R package": ("study.csv", r_table),
    "RJafroc": ("study.xlsx", jafroc),
    "RJafroc, new names": ("study.xlsx", lambda study, path: jafroc(study, path, ("NL", "LL"))),
}


@pytest.mark.parametrize("form", FORMS)
def test_formats_of_other_programs_give_the_same_study(form: str, tmp_path: Path) -> None:
    study = drawn(np.random.default_rng(3), t=2, r=3, n=30)
    name, write = FORMS[form]
    write(study, tmp_path / name)
    names = ("reader", "case", "modality", "score", "truth")
    plain = rb.readers([dict(zip(names, row, strict=True)) for row in readings(study)])
    result = rb.readers(tmp_path / name)
    assert result.n_cases == 30
    by_name = {one["modality"]: one["value"] for one in result.records if one["minus"] is None}
    areas = {m: np.mean([roc_auc_score(study.truth, own) for own in study.scores[t]])
             for t, m in enumerate(study.modalities)}  # fmt: skip
    assert by_name == pytest.approx(areas)
    expected = {one["modality"]: one["error"] for one in plain.records}
    assert {one["modality"]: one["error"] for one in result.records} == pytest.approx(expected)


def test_files_that_break_their_format_are_refused_with_the_place(tmp_path: Path) -> None:
    study = drawn(np.random.default_rng(3), t=2, r=2, n=8)
    file = tmp_path / "study.imrmc"
    imrmc(study, file)
    text = file.read_text(encoding="utf-8")
    for wrong, message in {
        text.replace("-1,3,0,0\n", ""): r"study\.imrmc:6: `caseID` must have a row with its truth, got 3",
        text + "-1,3,0,1\n": r"study\.imrmc:44: `score` must give case 3 one truth, got 1",
        text.replace("r0,2,m0,", "r0,2,m0;"): r"study\.imrmc:5: ",
    }.items():
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            rb.readers(file)
    with file.open("r+b") as long:  # its size is checked before it is read
        long.truncate((1 << 28) + 1)
    with pytest.raises(ValueError, match=r"study\.imrmc: `size` must be at most 268,435,456 bytes, got 268,435,457"):
        rb.readers(file)
    damaged = tmp_path / "damaged.xlsx"
    for sound, other, compression in (
        (b"<sheet/>", b"<sheep/>", 0),
        ("ä.xml".encode(), b"\xff\xff.xml", 0),
        (b"\x5d\0", b"\xff\0", 14),
    ):
        with zipfile.ZipFile(damaged, "w", compression) as archive:
            archive.writestr("xl/workbook.xml", "<sheet/>")
            archive.writestr("ä.xml", "")
        damaged.write_bytes(
            damaged.read_bytes().replace(sound, other)
        )  # a checksum, a name, or LZMA's head is wrong now
        with pytest.raises(ValueError, match=r"damaged\.xlsx: `file` must be readable as xlsx, got "):
            rb.readers(damaged)
    jafroc(study, tmp_path / "froc.xlsx", FP=[["r0", "m0", 1, 3.0]])  # a false mark on a case with a lesion
    with pytest.raises(ValueError, match="must be a case with no lesion in the sheet Truth: free-response marks"):
        rb.readers(tmp_path / "froc.xlsx")
