"""Images as DICOM: a program that follows the header, whatever it says, shows the image; and headers vary as real ones
do.
"""

import io
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from PIL import Image

from reveal_bench.dicom import develop_dicom, read_header, write_dicom
from reveal_bench.phantom import write_reveal
from reveal_bench.phantom.dicom_headers import PLANTED, draw_header, identifiers
from reveal_bench.phantom.reveal import reveal_film
from reveal_bench.phantom.reveal_pixels import SHARES, draw_storage, stored_values
from reveal_bench.phantom.reveal_studies import studies

RAMP = np.tile(np.arange(256, dtype=np.uint8), (6, 1))

FORCED = [
    {"photometric": "MONOCHROME1", "voi": "window", "bits": "12"},
    {"photometric": "MONOCHROME2", "voi": "window", "bits": "10", "windows": "3"},
    {"photometric": "MONOCHROME1", "voi": "lut", "bits": "12", "rescale": "LOG_E REL", "slope": "-1"},
    {"photometric": "MONOCHROME2", "voi": "lut", "bits": "15"},
    {"photometric": "MONOCHROME1", "voi": "both", "bits": "14", "shape": "INVERSE"},
    {"photometric": "MONOCHROME2", "voi": "window", "function": "LINEAR_EXACT", "rescale": "LOG_E REL", "slope": "1"},
    {"photometric": "MONOCHROME1", "voi": "window", "function": "SIGMOID", "bits": "15"},
    {"photometric": "MONOCHROME1", "voi": "neither", "bits": "12", "rescale": "LOG_E REL", "slope": "-1"},
    {"photometric": "MONOCHROME2", "voi": "neither", "bits": "10", "rescale": ""},
]


def shown_by_pydicom(path, bits):
    """Grey levels by pydicom's own steps, brought to 8 bits by hand."""
    import pydicom
    from pydicom.pixels import apply_modality_lut, apply_voi_lut

    dataset = pydicom.dcmread(path, force=True)
    if not hasattr(dataset.file_meta, "TransferSyntaxUID"):
        dataset.file_meta.TransferSyntaxUID = pydicom.uid.ImplicitVRLittleEndian
    values = apply_modality_lut(dataset.pixel_array, dataset).astype(float)
    if "VOILUTSequence" in dataset:
        levels = apply_voi_lut(values.astype(int), dataset, prefer_lut=True).astype(float)
        levels /= (1 << dataset.VOILUTSequence[0].LUTDescriptor[2]) - 1
    elif "WindowCenter" in dataset:
        levels = apply_voi_lut(values, dataset, index=0) / ((1 << bits) - 1)
    else:
        levels = values / ((1 << bits) - 1)
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        levels = 1 - levels
    return np.rint(255 * levels)


@pytest.mark.parametrize("force", FORCED, ids=lambda force: "-".join(force.values()))
def test_pydicom_shows_the_film(tmp_path, force):
    """For a window pydicom spreads the output over the range of the stored bits, after a slope of 1 or -1 the same."""
    rng = np.random.default_rng(3)
    storage = draw_storage(rng, force=force)
    values = stored_values(RAMP, storage, rng)
    write_dicom(
        tmp_path / "f.dcm", values, storage.attributes, bits_stored=storage.bits_stored, photometric=storage.photometric
    )
    levels = shown_by_pydicom(tmp_path / "f.dcm", storage.bits_stored)
    assert np.abs(levels - RAMP).max() <= 1
    developed = np.asarray(Image.open(io.BytesIO(develop_dicom(tmp_path / "f.dcm").data)))
    assert np.abs(developed.astype(int) - RAMP).max() <= 1


def test_a_window_after_a_negative_slope():
    """By the formula of PS3.3 C.11.2.1.2.1; pydicom's own turns the picture over where the slope is < 0."""
    rng = np.random.default_rng(5)
    force = {"photometric": "MONOCHROME1", "voi": "window", "function": "", "rescale": "LOG_E REL", "slope": "-1"}
    storage = draw_storage(rng, force={**force, "bits": "12", "windows": "1"})
    values = 4095 - stored_values(RAMP, storage, rng).astype(float)
    center, width = (float(storage.attributes[name]) for name in ("WindowCenter", "WindowWidth"))
    levels = 1 - np.clip((values - (center - 0.5)) / (width - 1) + 0.5, 0, 1)
    assert np.abs(255 * levels - RAMP).max() <= 1


def test_a_pipeline_that_skips_a_step_is_found_out():
    """Stored values themselves, stretched to 8 bits, are not the film."""
    rng = np.random.default_rng(0)
    for force in FORCED[:-1]:
        storage = draw_storage(rng, force=force)
        values = stored_values(RAMP, storage, rng).astype(float)
        naive = np.rint(255 * values / ((1 << storage.bits_stored) - 1))
        undone = force.get("slope") == "-1" and force["photometric"] == "MONOCHROME1" and force["voi"] == "neither"
        assert undone or np.abs(naive - RAMP).mean() > 5


def test_shares_are_the_measured_ones():
    """4,000 draws: every count within 4 standard deviations of its share (and one, for shares near 0)."""
    rng = np.random.default_rng(1)
    drawn = [draw_storage(rng).choices for _ in range(4000)]
    for name, shares in SHARES.items():
        total = sum(shares.values())
        counts = Counter(choices[name] for choices in drawn)
        for value, share in shares.items():
            p = share / total
            assert abs(counts[value] - 4000 * p) < 4 * (4000 * p * (1 - p)) ** 0.5 + 1, (name, value)
    assert abs(SHARES["photometric"]["MONOCHROME1"] - 0.48) < 0.001
    assert SHARES["bits"].keys() == {"10", "12", "14", "15"}


def headers(n):
    rng = np.random.default_rng(2)
    for study in islice(studies(seed=2), n):
        for image in study.images:
            yield image, draw_header(study, image, rng)


def test_headers_have_the_spellings_and_holes_of_real_ones():
    made = list(headers(1500))
    makers = {header["Manufacturer"] for _, header in made}
    assert {
        "CARESTREAM HEALTH",
        "Carestream Health",
        "Carestream",
        "GE Healthcare",
        "Philips Medical Systems",
    } <= makers
    assert {"DRX-REVOLUTION", "DRX-Revolution"} <= {header["ManufacturerModelName"] for _, header in made}
    positions = {header.get("ViewPosition") for _, header in made}
    assert {"AP", "PA", "LL", "LATERAL", "POSTERO ANTERIOR", "", None} <= positions
    no_spacing = sum("PixelSpacing" not in header for _, header in made) / len(made)
    assert abs(no_spacing - 0.34) < 4 * (0.34 * 0.66 / len(made)) ** 0.5
    zero = [header for _, header in made if header.get("PixelSpacing") == "0.000\\0.000"]
    assert zero
    assert all(float(header["ImagerPixelSpacing"].split("\\")[0]) > 0 for header in zero)
    assert {"12.4", "18.4", "0.0", "1000"} <= {header.get("DistanceSourceToDetector") for _, header in made}
    assert any("PatientIdentityRemoved" not in header for _, header in made)
    assert any(header["BodyPartExamined"] == "EXTREMETY" for _, header in made)


def test_what_is_planted_is_in_the_file(tmp_path):
    """A leak test that searches for values never planted would pass on anything."""
    study = next(iter(studies(seed=0)))
    image = study.images[0]
    write_dicom(
        tmp_path / "f.dcm", RAMP.astype(np.uint16), draw_header(study, image, np.random.default_rng(0)), bits_stored=12
    )
    data = (tmp_path / "f.dcm").read_bytes()
    missing = [text for text in identifiers(study, image) if text.encode() not in data]
    assert missing == []
    assert set(PLANTED.values()) <= set(identifiers(study, image))
    assert len(data.split(b"Leakington")) > 20


def test_written_films_develop_to_what_was_rendered(tmp_path):
    """End to end, over every rare way to store a film: the first 15 studies have them all."""
    write_reveal(tmp_path, n_studies=15, seed=3, long_side=96)
    syntaxes, bits = set(), set()
    for study in islice(studies(seed=3), 15):
        for image in study.images:
            file = tmp_path / "images" / "batch001" / f"{study.index:02d}" / f"film{image.number}.dcm"
            if not file.exists():
                file = tmp_path / "images" / "loose" / f"IM{study.index:06d}{image.number}"
            header = read_header(file)
            syntaxes.add(header.transfer_syntax)
            bits.add(header.bits_stored)
            assert header.study_uid == study.study_uid
            developed = np.asarray(Image.open(io.BytesIO(develop_dicom(file).data)))
            film = reveal_film(study, image, 96)
            assert developed.shape == film.shape == (header.rows, header.columns)
            assert np.abs(developed.astype(int) - film).max() <= 1
    assert bits == {10, 12, 14, 15}
    assert len(syntaxes) >= 5
