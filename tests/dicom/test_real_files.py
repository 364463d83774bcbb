"""Real files: pydicom's own display functions as oracle, lossless siblings, published hashes, no header text."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from reveal_bench.dicom import DicomError, DicomPng, develop_dicom, read_header, set_aside
from reveal_bench.dicom.dataset import quiet_pydicom
from reveal_bench.dicom.decode import decode
from reveal_bench.dicom.files import DicomFile
from tests.dicom.conftest import grey_bytes, real

RG1 = ["RG1_UNCR.dcm", "RG1_J2KR.dcm", "RG1_UNCI.dcm", "RG1_J2KI.dcm"]
RG3 = ["RG3_UNCR.dcm", "RG3_J2KR.dcm", "RG3_UNCI.dcm", "RG3_J2KI.dcm"]
CHEST = "966_scrubbed.dcm"


@functools.cache
def developed_levels(path: Path) -> tuple[bytes, DicomPng]:
    return grey_bytes(path)


def shown_by_pydicom(path: Path) -> np.ndarray:
    """Grey levels from pydicom's pixel_array, apply_modality_lut and apply_voi_lut, over its output range."""
    with quiet_pydicom() as pydicom:
        from pydicom.pixels import apply_modality_lut, apply_voi_lut

        ds = pydicom.dcmread(path)
        values = apply_voi_lut(apply_modality_lut(ds.pixel_array, ds), ds, index=0).astype(float)
        if "VOILUTSequence" in ds:
            low, high = 0, 2 ** ds.VOILUTSequence[0].LUTDescriptor[2] - 1
        elif "ModalityLUTSequence" in ds:
            low, high = 0, 2 ** ds.ModalityLUTSequence[0].LUTDescriptor[2] - 1
        else:
            half = 2 ** (ds.BitsStored - 1) if ds.PixelRepresentation else 0
            low, high = -half, 2**ds.BitsStored - 1 - half
            slope, intercept = float(ds.get("RescaleSlope", 1)), float(ds.get("RescaleIntercept", 0))
            low, high = slope * low + intercept, slope * high + intercept
        if "VOILUTSequence" not in ds and "WindowCenter" not in ds and np.ptp(values) < (high - low) / 16:
            low, high = values.min(), values.max()  # the full range of 16 bits would show nothing
    share = (values - low) / (high - low)
    return np.rint(255 * (1 - share if ds.PhotometricInterpretation == "MONOCHROME1" else share)).astype(np.uint8)


@pytest.mark.parametrize(
    "name",
    # radiographs and test patterns; then signed, big-endian, JPEG, JPEG-LS and near-lossless pictures of other kinds
    [CHEST, "mlut_18.dcm", "vlut_04.dcm", *RG1, *RG3, "JPEG-LL.dcm", "JPGLosslessP14SV1_1s_1f_8b.dcm",
     "bad_sequence.dcm"],
)  # fmt: skip
def test_equal_to_pydicom_at_every_pixel(name: str) -> None:
    path = real(name)
    levels, developed = developed_levels(path)
    expected = shown_by_pydicom(path)
    assert developed.size == expected.shape
    assert levels == expected.tobytes()


@pytest.mark.parametrize(
    "name",
    ["MR_small.dcm", "MR_small_bigendian.dcm", "MR_small_RLE.dcm", "MR_small_jp2klossless.dcm",
     "MR_small_jpeg_ls_lossless.dcm", "MR_small_padded.dcm", "JPEGLSNearLossless_16.dcm", "J2K_pixelrep_mismatch.dcm",
     "CT_small.dcm", "image_dfl.dcm"],
)  # fmt: skip
def test_equal_to_pydicom_on_the_files_it_brings(name: str) -> None:
    from pydicom.data import get_testdata_file

    path = get_testdata_file(name, download=False)
    assert isinstance(path, str)
    assert grey_bytes(Path(path))[0] == shown_by_pydicom(Path(path)).tobytes()


@pytest.mark.parametrize("names", [RG1[:2], RG1[2:], RG3[:2], RG3[2:]])
def test_lossless_siblings_give_equal_pixels(names: list[str]) -> None:
    first, second = (developed_levels(real(name))[1] for name in names)
    assert first.pixel_sha256 == second.pixel_sha256
    assert first.source_sha256 != second.source_sha256


@pytest.mark.parametrize("name", RG3[:2])
def test_stored_values_have_the_hash_published_for_them(name: str) -> None:
    with quiet_pydicom() as pydicom:
        ds = pydicom.dcmread(real(name))
        stored = decode(ds, str(ds.file_meta.TransferSyntaxUID), (1760, 1760)).patterns
    assert hashlib.sha256(stored.astype("<u2").tobytes()).hexdigest().startswith("85480a0287e37795")


@pytest.mark.parametrize(
    ("name", "decoder"), [(CHEST, "pylibjpeg-openjpeg"), ("JPEG-LL.dcm", "gdcm"), (RG1[0], "pydicom")]
)
def test_the_pipeline_names_decoder_and_steps(name: str, decoder: str) -> None:
    pipeline = developed_levels(real(name))[1].pipeline
    assert re.match(rf"dicom-v2: {decoder} [\d.]+ -> ", pipeline)
    if name == CHEST:
        assert pipeline.split(" -> ")[1:5] == [
            "modality slope/intercept",
            "voi window 1 of 1 LINEAR",
            "invert (MONOCHROME1)",
            "8 bit",
        ]


@pytest.mark.parametrize("name", [CHEST, RG1[0]])
def test_lungs_are_dark_and_the_spine_is_bright(name: str) -> None:
    """Both are MONOCHROME1 chest films: places read off the pictures, as shares of height and width."""
    levels, developed = developed_levels(real(name))
    height, width = developed.size
    picture = np.frombuffer(levels, np.uint8).reshape(height, width)

    def brightness(top: float, left: float) -> float:
        return float(picture[int(top * height) :, int(left * width) :][: height // 20, : width // 20].mean())

    right_lung, spine, abdomen = brightness(0.3, 0.22), brightness(0.7, 0.48), brightness(0.85, 0.3)
    assert right_lung + 40 < min(spine, abdomen)


@pytest.mark.parametrize("name", ["JPGExtended.dcm", "JPEG-lossy.dcm"])
def test_jpeg_extended_of_12_bits_is_refused_by_name(name: str) -> None:
    from pydicom.data import get_testdata_file

    path = get_testdata_file(name, download=False)
    assert isinstance(path, str)
    with pytest.raises(
        DicomError, match=r"JPEG Extended .*1\.2\.840\.10008\.1\.2\.4\.51\) with 12 bits: not supported"
    ):
        develop_dicom(Path(path))


def test_facts_of_a_digital_chest_film() -> None:
    header = read_header(real(CHEST))
    assert (header.modality, header.view, header.view_raw, header.photometric) == ("DX", "PA", "PA", "MONOCHROME1")
    assert (header.rows, header.columns, header.bits_stored) == (2128, 2000, 12)
    assert (header.spacing_mm, header.spacing_source) == ((0.16, 0.16), "pixel_spacing")
    assert (header.manufacturer, header.manufacturer_raw, header.model) == ("CANON", "Canon Inc.", None)
    # "+125.0" kV, "1" mAs and "+1450.0" mm are in the file; age and sex are empty
    assert (header.kvp, header.exposure_mas, header.distance_source_to_detector_mm) == (125.0, 1.0, 1450.0)
    assert (header.age_years, header.sex, header.burned_in, header.deidentified) == (None, None, False, True)
    assert set_aside(header) is None


def test_facts_of_a_computed_chest_film_with_spacing_of_zero() -> None:
    header = read_header(real(RG1[0]))
    assert (header.modality, header.view, header.bits_stored) == ("CR", "PA", 15)
    assert (header.spacing_mm, header.spacing_source) == (None, "none")  # 0.000\0.000, no ImagerPixelSpacing
    assert (header.manufacturer, header.manufacturer_raw) == ("PHILIPS", "Philips Medical Systems")
    assert (header.kvp, header.distance_source_to_detector_mm) == (150.0, 1996.0)


def test_no_text_of_the_header_leaves() -> None:
    """Every text of the file, except whitelisted ones, is sought in all output: header, PNG, pipeline, warnings."""
    path = real(CHEST)
    header, developed = read_header(path), developed_levels(path)[1]
    out = repr(header).encode() + developed.data + developed.pipeline.encode() + repr(developed.warnings).encode()
    with quiet_pydicom() as pydicom:
        allowed = {str(getattr(header, name)) for name in header.__dataclass_fields__} | {
            *header.image_type,
            "YES",
            "NO",
        }
        texts = {
            str(e.value) for e in pydicom.dcmread(path).iterall() if e.VR in ("PN", "LO", "SH", "UI", "DA", "TM", "LT")
        }
    standard = "1.2.840.10008."  # UIDs of DICOM itself
    secret = {text for text in texts - allowed if len(text) > 3 and not text.startswith(standard)}
    assert len(secret) > 5
    assert [text for text in secret if text.encode() in out] == []
    private = (header.study_uid, header.series_uid, header.sop_uid, header.patient_key)
    assert [text for text in private if text and text.encode() in out] == []


def test_real_members_of_an_archive(tmp_path: Path) -> None:
    import zipfile

    plain = developed_levels(real(RG1[0]))[1]
    with zipfile.ZipFile(tmp_path / "series.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(real(RG1[0]), "a/1.dcm")
    member = DicomFile(tmp_path / "series.zip", "a/1.dcm")
    assert develop_dicom(member) == plain
    assert read_header(member) == read_header(real(RG1[0]))
