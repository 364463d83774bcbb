"""No text of a DICOM header gets into a folder: all elements of text are planted, in the twin of every source."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import build_folder
from reveal_bench.phantom import LAYOUTS, write_reveal
from reveal_bench.sources import midrc, rsna_pneumonia, siim_acr, vindr_cxr
from reveal_bench.sources.source import SourceData
from tests.sources.reveal_trees import KEY, everything

TEXT = {"AE", "CS", "LO", "LT", "PN", "SH", "ST", "UC", "UT"}
STRUCTURE = {  # what says how to read the pixels, and that this is an original radiograph
    "SpecificCharacterSet", "PhotometricInterpretation", "Modality", "ImageType", "VOILUTFunction",
    "PresentationLUTShape", "PixelIntensityRelationship", "RescaleType", "BurnedInAnnotation",
    "PresentationIntentType", "LossyImageCompression",
}  # fmt: skip
MARK = "LEAK"


@cache
def planted_texts() -> dict[str, tuple[int, str, str]]:
    """Keyword -> (tag, VR, text): a text of its own for every text element of the DICOM dictionary."""
    from pydicom.datadict import DicomDictionary, keyword_for_tag

    planted = {}
    for tag, (vr, _, _, retired, _) in DicomDictionary.items():
        group, keyword = tag >> 16, keyword_for_tag(tag)
        if retired or not 0x0008 <= group < 0x5000 or not keyword or keyword in STRUCTURE or vr not in TEXT:
            continue
        text = f"{MARK}{tag:08X}"
        planted[keyword] = (tag, vr, f"{text}^Jane" if vr == "PN" or keyword.startswith("Manufacturer") else text)
    return planted


DATES = {"PatientBirthDate": "19310203", "StudyDate": "20230405", "AcquisitionDate": "20230406"}


def plant(root: Path) -> int:
    """Put every text into every DICOM file; the number of files."""
    import pydicom

    n_files = 0
    for path in sorted(root.rglob("*.d*c*m")):
        dataset = pydicom.dcmread(path, force=True)
        if "TransferSyntaxUID" not in dataset.file_meta:
            continue  # a trap of the twin: a file that pydicom could not write again as it is
        for tag, vr, text in planted_texts().values():
            dataset.add_new(tag, vr, text)
        for keyword, date in DATES.items():
            setattr(dataset, keyword, date)
        dataset.add_new(0x00190010, "LO", f"{MARK} MAKER")
        dataset.add_new(0x00191001, "LT", f"{MARK} private")
        dataset.save_as(path)
        n_files += 1
    return n_files


def read(source: str, twin: Path) -> tuple[str, SourceData]:
    if source == "midrc":
        return "reveal-cxr", midrc.read(twin, id_key=KEY)
    modules = {"siim-acr": siim_acr, "rsna-pneumonia": rsna_pneumonia}
    name = source if source in modules else "vindr-cxr"
    return name, modules.get(source, vindr_cxr).read(twin, keep_going=True)


@pytest.fixture(scope="module", params=["siim-acr", "rsna-pneumonia", "vindr-cxr", "vinbigdata", "midrc"])
def planted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A source, and its twin with every text in every film."""
    source, twin = request.param, tmp_path_factory.mktemp("planted") / "twin"
    if source == "midrc":
        write_reveal(twin, n_studies=4, seed=5, long_side=64, layout="midrc")
        for path in twin.glob("*manifest*"):  # sizes and md5sums of the files as they were
            path.unlink()
        for path in twin.glob("*series_file*"):
            path.unlink()
        for path in twin.rglob("*.zip"):
            with zipfile.ZipFile(path) as archive:
                archive.extractall(path.with_suffix(""))
            path.unlink()
    else:
        LAYOUTS[source](twin, n_images=4, seed=5, long_side=64)
    assert len(planted_texts()) > 500
    assert plant(twin) >= 3
    return source, twin


@pytest.mark.parametrize("pixels", ["embed", "withhold"])
def test_no_text_of_a_header_is_in_the_folder(planted: tuple[str, Path], tmp_path: Path, pixels: Any) -> None:
    name, source_data = read(*planted)
    assert sum(len(list(records)) for records in source_data.splits.values()) >= 2
    build_folder(
        source_data.splits, tmp_path / "out", BENCHMARKS[name], extras=source_data.extras, pixels=pixels,
        synthetic=source_data.synthetic, keep_going=True,
    )  # fmt: skip
    parquets = sorted((tmp_path / "out").rglob("*.parquet"))
    assert parquets
    contents = [path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    for path in parquets:
        table = pq.read_table(path)
        contents += [*everything(table.to_pylist()), str(table.schema.metadata).encode()]
    assert [content[:200] for content in contents if MARK.encode() in content] == []
    assert [date for date in DATES.values() if any(date.encode() in content for content in contents)] == []
