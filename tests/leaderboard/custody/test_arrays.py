"""Canonical predictions are restored equal and score bit for bit alike; the reader refuses everything else."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reveal_leaderboard.custody import MOST_MASK_RUNS
from reveal_leaderboard.custody.arrays import (
    dump_manifest,
    load_manifest,
    read_arrays,
    read_canonical,
    stamp_of,
    write_arrays,
    write_canonical,
)

from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, ManifestRow
from reveal_bench.masks import Rle, encode_mask

FINDINGS = ("Edema", "Lung Lesion", "Fracture")
SIZES = {"b": (7, 5), "a": (1, 1), "c": (40, 3)}
MANIFEST = ImageManifest(
    "bench", "1", "test", 8, FINDINGS, {k: ManifestRow(k, k, "AP", w, h, FINDINGS) for k, (h, w) in SIZES.items()}
)
STUDIES = StudyManifest("bench", "1", "test", FINDINGS, ("s2", "s1", "s3"))


def written(predictions: Any, manifest: ImageManifest | StudyManifest = MANIFEST) -> io.BytesIO:
    file = io.BytesIO()
    write_canonical(file, predictions, manifest)
    return file


inside = st.floats(0, 1, exclude_max=True)


@st.composite
def located(draw: st.DrawFn, image: str, finding: str) -> LocalizationPrediction:
    height, width = SIZES[image]
    kinds = draw(st.sets(st.sampled_from(["points", "cell", "box", "mask"]), min_size=1))
    n_points = draw(st.integers(1, 3))
    points = tuple((draw(inside) * width, draw(inside) * height) for _ in range(n_points))
    x, y = draw(inside) * width / 2, draw(inside) * height / 2
    box = (x, y, draw(st.floats(0.01, 0.5)) * width, draw(st.floats(0.01, 0.5)) * height)
    pixels = draw(st.lists(st.booleans(), min_size=height * width, max_size=height * width))
    return LocalizationPrediction(
        image,
        finding,
        points=points if "points" in kinds else (),
        cell=draw(st.sampled_from(["A1", "H8", "C5"])) if "cell" in kinds else None,
        box=box if "box" in kinds else None,
        mask=encode_mask(np.array(pixels).reshape(height, width)) if "mask" in kinds else None,
        score=draw(st.none() | st.floats(0, 1)),
        line=draw(st.integers(0, 2**40)),
    )


pairs = st.lists(st.tuples(st.sampled_from(list(SIZES)), st.sampled_from(FINDINGS)), unique=True)


@given(pairs.flatmap(lambda chosen: st.tuples(*(located(*pair) for pair in chosen))))
def test_localization_predictions_come_back_equal(predictions: tuple[LocalizationPrediction, ...]) -> None:
    again = read_canonical(written(predictions), MANIFEST)
    assert again == predictions
    assert repr(again) == repr(predictions)  # bit for bit: -0.0 and the last digit, too


label_lists = st.lists(st.sampled_from(FINDINGS), unique=True).map(tuple)
probability_maps = st.fixed_dictionaries({finding: st.floats(0, 1) for finding in FINDINGS})


@given(st.permutations(STUDIES.studies), st.integers(0, 3), st.booleans(), st.data())
def test_findings_predictions_come_back_equal(
    studies: list[str], n: int, gives_labels: bool, data: st.DataObject
) -> None:
    predictions = tuple(
        FindingsPrediction(study, data.draw(label_lists), None, i)
        if gives_labels
        else FindingsPrediction(study, None, data.draw(probability_maps), i)
        for i, study in enumerate(studies[:n])
    )
    assert read_canonical(written(predictions, STUDIES), STUDIES) == predictions


def loosened(text: str) -> str:
    """The same runs, the first spelt with a character more than it needs: of 5 bits, all like its sign."""
    end = next(i for i, character in enumerate(text) if not (ord(character) - 48) & 0x20)
    is_negative = (ord(text[end]) - 48) & 0x10
    return text[:end] + chr(ord(text[end]) + 0x20) + ("O" if is_negative else "0") + text[end + 1 :]


@given(st.lists(st.lists(st.booleans(), min_size=120, max_size=120), min_size=1, max_size=4))
def test_masks_are_spelt_as_pycocotools_spells_them(many: list[list[bool]]) -> None:
    from pycocotools import mask as oracle

    masks = [np.asfortranarray(np.array(pixels, np.uint8).reshape(40, 3)) for pixels in many]
    spelt = [oracle.encode(mask)["counts"].decode() for mask in masks]
    loose = [Rle((40, 3), loosened(text)) for text in spelt]
    for text, rle in zip(spelt, loose, strict=True):
        (again,) = read_canonical(written([LocalizationPrediction("c", "Edema", mask=rle)]), MANIFEST)
        assert isinstance(again, LocalizationPrediction)
        assert again.mask == Rle((40, 3), text)


def test_the_bytes_depend_on_the_predictions_alone() -> None:
    predictions = [LocalizationPrediction("a", "Edema", points=((0.5, 0.25),))]
    assert written(predictions).getvalue() == written(list(predictions)).getvalue()


@pytest.mark.parametrize("manifest", [MANIFEST, STUDIES], ids=["localization", "findings"])
def test_a_manifest_passes_as_it_is(manifest: ImageManifest | StudyManifest) -> None:
    again = load_manifest(dump_manifest(manifest))
    assert again == manifest
    assert stamp_of(again) == stamp_of(manifest)
    assert stamp_of(replace(manifest, version="2")) != stamp_of(manifest)


def test_the_order_of_a_manifest_counts() -> None:
    rows = dict(reversed(MANIFEST.rows.items()))
    assert stamp_of(replace(MANIFEST, rows=rows)) != stamp_of(MANIFEST)


@pytest.mark.parametrize(
    ("predictions", "manifest", "message"),
    [
        ([LocalizationPrediction("z", "Edema", cell="A1")], MANIFEST, "the manifest's images"),
        ([LocalizationPrediction("a", "Oedema", cell="A1")], MANIFEST, "the manifest's images"),
        ([LocalizationPrediction("a", "Edema", cell="J1")], MANIFEST, "the manifest's images"),
        ([LocalizationPrediction("a", "Edema", mask=Rle((1, 1), "zz"))], MANIFEST, "may only contain"),
        ([FindingsPrediction("s9", ("Edema",))], STUDIES, "the manifest's studies"),
        ([FindingsPrediction("s1", ("Oedema",))], STUDIES, "the manifest's studies"),
        ([FindingsPrediction("s1", None, {"Edema": 0.5})], STUDIES, "the manifest's studies"),
        ([FindingsPrediction("s1", (), None), FindingsPrediction("s2", None, {})], STUDIES, "all give"),
        ([FindingsPrediction("s1")], STUDIES, "must give labels"),
    ],
)
def test_the_writer_refuses(predictions: Any, manifest: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"manifest|must|may") as caught:
        written(predictions, manifest)
    assert message.replace("all give", "must give") in str(caught.value)


GOOD = [
    LocalizationPrediction("b", "Edema", points=((1.0, 2.0),), cell="A1", score=0.5),
    LocalizationPrediction("c", "Fracture", box=(0.5, 1.0, 2.0, 3.0), mask=encode_mask(np.ones((40, 3)))),
    LocalizationPrediction("c", "Edema", mask=encode_mask(np.eye(40)[:, :3])),
]
GOOD_STUDIES = [FindingsPrediction("s1", ("Edema", "Fracture")), FindingsPrediction("s2", ("Lung Lesion",))]
LOCALIZATION = {
    "stamp": ("u1", 1), "line": ("<i8", 1), "image": ("<u4", 1), "finding": ("<u2", 1), "n_points": ("<u2", 1),
    "points": ("<f8", 2), "cell": ("<i2", 1), "has_box": ("|b1", 1), "boxes": ("<f8", 2), "score": ("<f8", 1),
    "has_mask": ("|b1", 1), "mask_offsets": ("<i8", 1), "mask_text": ("|u1", 1),
}  # fmt: skip
Change = Callable[[dict[str, Any]], object]


def put(name: str, place: Any, value: Any) -> Change:
    return lambda arrays: arrays[name].__setitem__(place, value)


def become(name: str, value: Any) -> Change:
    return lambda arrays: arrays.__setitem__(name, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put("stamp", 0, 1), "are for a different manifest"),
        (put("line", 0, -1), "`line` must not be negative"),
        (put("image", 0, 3), "`image` must be an index"),
        (put("finding", 0, 3), "`finding` must be an index"),
        (put("finding", 2, 2), "must be predicted once"),
        (put("cell", 0, 64), "`cell` must be in the grid"),
        (put("cell", 0, -2), "`cell` must be in the grid"),
        (put("score", 0, 1.5), "`score` must be in"),
        (put("score", 0, np.inf), "`score` must be in"),
        (put("points", (0, 0), 5.0), "`points` must be inside"),
        (put("points", (0, 1), np.nan), "`points` must be inside"),
        (put("n_points", 0, 2), "`points` must have shape"),
        (put("boxes", (0, 2), 2.6), "`boxes` must be inside"),
        (put("boxes", (0, 2), -1.0), "`boxes` must be inside"),
        (put("boxes", (0, 0), np.nan), "`boxes` must be inside"),
        (put("has_box", 0, True), "`boxes` must have shape"),
        (put("has_mask", 0, True), "offsets of 3 masks"),
        (put("mask_offsets", 0, 1), "must rise from 0"),
        (put("mask_offsets", 1, -5), "must rise from 0"),
        (put("mask_offsets", 1, 99), "must rise from 0"),
        (put("mask_offsets", 1, 1), "a mask is malformed"),
        (put("mask_text", 0, 0), "a mask is malformed"),
        (put("mask_text", 0, 200), "a mask is malformed"),
        (become("score", np.zeros(2)), "one value per prediction, 3, got 2"),
        (become("line", np.zeros(4, np.int64)), "one value per prediction, 4, got 3"),
        (become("score", np.zeros(3, np.float32)), "must have dtype <f8"),
        (become("score", np.zeros((3, 1))), "must have dtype <f8 and 1 axes"),
        (become("more", np.zeros(3)), "the arrays must be"),
        (lambda arrays: arrays.pop("cell"), "the arrays must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_reader_refuses(change: Change, message: str) -> None:
    arrays = {name: array.copy() for name, array in read_arrays(written(GOOD), LOCALIZATION).items()}
    change(arrays)
    file = io.BytesIO()
    write_arrays(file, arrays)
    with pytest.raises(ValueError, match=r"canonical|mask|arrays?") as caught:
        read_canonical(file, MANIFEST)
    assert message in str(caught.value)


def test_a_prediction_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="must hold a point, cell, box or mask"):
        read_canonical(written([LocalizationPrediction("a", "Edema")]), MANIFEST)


def test_a_pair_that_is_not_asked_is_refused() -> None:
    rows = MANIFEST.rows | {"a": replace(MANIFEST.rows["a"], asked=("Fracture",))}
    manifest = replace(MANIFEST, rows=rows)
    with pytest.raises(ValueError, match="must be asked for"):
        read_canonical(written([LocalizationPrediction("a", "Edema", cell="A1")], manifest), manifest)


def test_a_mask_of_too_many_runs_is_refused() -> None:
    height, width = 400, MOST_MASK_RUNS // 400 + 2
    row = ManifestRow("n", "n", "AP", width, height, FINDINGS)
    manifest = replace(MANIFEST, rows={"n": row})
    stripes = np.zeros((height, width), bool)
    stripes[::2] = True
    with pytest.raises(ValueError, match=f"at most {MOST_MASK_RUNS} runs, got {height * width + 1}"):
        read_canonical(written([LocalizationPrediction("n", "Edema", mask=encode_mask(stripes))], manifest), manifest)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("study", np.array([0, 3], np.uint32), "`study` must be an index"),
        ("study", np.array([1, 1], np.uint32), "each study must be predicted once"),
        ("labels", np.array([0, 3, 1], np.uint16), "`labels` must be indices"),
        ("labels", np.array([0, 0, 1], np.uint16), "name each label once"),
        ("labels", np.array([0], np.uint16), "as many values as"),
        ("n_labels", np.array([2], np.uint16), "one value per prediction"),
        ("gives_labels", np.array([True, True]), "must be one value"),
        ("gives_labels", np.array([False]), "`probabilities` must have shape"),
        ("probabilities", np.zeros((2, 3)), "`probabilities` must have shape"),
    ],
)
def test_the_reader_of_findings_refuses(name: str, value: Any, message: str) -> None:
    fields = {"stamp": ("u1", 1), "line": ("<i8", 1), "study": ("<u4", 1), "gives_labels": ("|b1", 1),
              "n_labels": ("<u2", 1), "labels": ("<u2", 1), "probabilities": ("<f8", 2)}  # fmt: skip
    arrays = read_arrays(written(GOOD_STUDIES, STUDIES), fields) | {name: value}
    file = io.BytesIO()
    write_arrays(file, arrays)
    with pytest.raises(ValueError, match="canonical predictions: ") as caught:
        read_canonical(file, STUDIES)
    assert message in str(caught.value)


def test_probabilities_out_of_range_are_refused() -> None:
    for wrong in (-0.1, 1.1, np.nan):
        predictions = [FindingsPrediction("s1", None, dict.fromkeys(FINDINGS, wrong))]
        with pytest.raises(ValueError, match=r"`probabilities` must be in \[0, 1\]"):
            read_canonical(written(predictions, STUDIES), STUDIES)


def test_an_archive_that_is_not_one() -> None:
    with pytest.raises(ValueError, match="must be an archive of arrays"):
        read_canonical(io.BytesIO(b"PK\x03\x04 not really"), MANIFEST)


def test_a_compressed_archive_is_refused() -> None:
    plain, packed = written(GOOD), io.BytesIO()
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(ValueError, match="stored without compression"):
        read_canonical(packed, MANIFEST)


def test_a_header_that_promises_more_than_there_is() -> None:
    plain, forged = written(GOOD), io.BytesIO()
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(forged, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            target.writestr(
                name, data.replace(b"'shape': (3,)", b"'shape': (9999999999999,)") if "line" in name else data
            )
    with pytest.raises(ValueError, match="must have the size of its"):
        read_canonical(forged, MANIFEST)


def test_objects_are_never_unpickled() -> None:
    file = io.BytesIO()
    arrays = read_arrays(written(GOOD), LOCALIZATION) | {"line": np.array([1, 2, 3], object)}
    np.savez(file, **arrays)
    with pytest.raises(ValueError, match="must have dtype <i8"):
        read_canonical(file, MANIFEST)


@given(st.booleans(), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4), st.integers(0, 500))
@settings(max_examples=80)
def test_flipped_bytes_and_a_lost_end_are_refused_or_harmless(
    of_studies: bool, flips: list[tuple[int, int]], n_lost: int
) -> None:
    predictions, manifest = (GOOD_STUDIES, STUDIES) if of_studies else (GOOD, MANIFEST)
    data = bytearray(written(predictions, manifest).getvalue())
    for place, value in flips:
        data[place % len(data)] = value
    del data[len(data) - n_lost :]
    with contextlib.suppress(ValueError):
        assert len(read_canonical(io.BytesIO(bytes(data)), manifest)) == len(predictions)
