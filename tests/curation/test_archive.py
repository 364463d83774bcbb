"""An archive of 150 studies, of which 15 have odd films, from `inspect` to `refresh` and `diff`."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pydicom
import pytest
from PIL import Image
from pydicom.uid import JPEGLSLossless

from reveal_bench.kinds.findings.records import read_studies
from tests.cli.test_score import call
from tests.sources.reveal_trees import write_film

N, READERS = 150, ("A", "B", "C")
FILM = np.add.outer(np.arange(64) * 28, np.arange(64) * 29).astype(np.uint16) + 200
BLANK = np.full((64, 64), 700, np.uint16)
NO_WINDOW = {"WindowCenter": None, "WindowWidth": None}
SENTENCES = {
    "Airspace opacity": "Airspace opacity in the left lower lobe.",
    "Cardiomegaly": "Cardiomegaly.",
    "Hiatal hernia": "Large hiatal hernia.",
    "Lung nodule": "Lung nodule in the right upper lobe.",
    "Pleural effusion": "Small left pleural effusion.",
    "Pneumothorax": "Small right pneumothorax.",
}
MAKERS = ("Agfa", "Canon", "Carestream", "Fujifilm", "GE", "Konica", "Philips", "Samsung", "Shimadzu", "Siemens")

FALLBACKS = {
    "020/1.dcm": "WindowWidth must be at least 1 for LINEAR",
    "030/1.dcm": "every pixel is white, so it uses the full range",
    "040/1.dcm": "VOILUTSequence must have entries of 8 to 16 bits",
    "050/1.dcm": "uses 12 bits, as in the compressed picture, instead of BitsStored 10",
    "080/1.dcm": "BodyPartExamined is HAND, not CHEST",
    "140/1.dcm": "no usable VOI LUT or window, so the full range of the stored bits is shown",
}
"""File -> what the log of `build` and the report must say of it."""
BLANK_FILM, DAMAGED = "010/1.dcm", "060/2.dcm"
"""Films of studies that have another film."""
UNUSABLE = {0: "every pixel is grey level 35", 70: "truncated: pixel data of 4,192 bytes instead of 8,192"}
"""Study whose only film cannot be used -> why."""


def labels_of(i: int) -> tuple[str, ...]:
    """Return the one or two labels of study `i`."""
    return tuple(label for k, label in enumerate(SENTENCES) if k in (i % 6, i // 6 % 6))


def film(root: Path, i: int, number: int = 1, *, pixels: np.ndarray = FILM, **odd: Any) -> Path:
    """Write a film of study `i` with an odd header; no two films have the same pixels."""
    header = {"Manufacturer": MAKERS[i % 10], "ManufacturerModelName": f"Room {i % 10}", "BodyPartExamined": "CHEST"}
    if np.ptp(pixels):
        pixels = pixels.copy()
        pixels[0] = np.random.default_rng([i, number]).integers(0, pixels.max(), 64)
    path = root / f"{i:03}" / f"{number}.dcm"
    odd = {**header, "WindowCenter": 2000, "WindowWidth": 3600, **odd}
    write_film(path, f"1.2.{i}", number, patient=f"P{i}", view="PA", pixels=pixels, **odd)
    return path


def write_films(root: Path) -> None:
    """Write a film of each study, and the odd ones."""
    for i in range(N):
        film(root, i)
    film(root, 0, pixels=BLANK)
    film(root, 10, pixels=BLANK)
    film(root, 10, 2)
    film(root, 20, WindowWidth=0)
    film(root, 30, WindowCenter=-900, WindowWidth=100)
    film(root, 40, VOILUTSequence=[{"LUTDescriptor": [16, 0, 4], "LUTData": list(range(16))}], **NO_WINDOW)
    deep = pydicom.dcmread(film(root, 50))
    deep.compress(JPEGLSLossless)  # of 12 bits
    deep.BitsStored, deep.HighBit = 10, 9
    deep.save_as(root / "050" / "1.dcm")
    for damaged in (film(root, 60, 2), film(root, 70)):
        damaged.write_bytes(damaged.read_bytes()[:-4000])
    film(root, 80, BodyPartExamined="HAND")
    film(root, 90, ViewPosition=None, ViewCodeSequence=[{"CodeValue": "R-10206"}])
    film(root, 100, PhotometricInterpretation="MONOCHROME1", PresentationLUTShape="INVERSE")
    film(root, 110, 2, SOPClassUID="1.2.840.10008.5.1.4.1.1.7")  # a secondary capture
    again = film(root, 120)
    (again.parent / "2.dcm").write_bytes(again.read_bytes())
    film(root, 130, PixelPaddingValue=0, PixelPaddingRangeLimit=4095)
    film(root, 140, **NO_WINDOW)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    rows = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def curate(root: Path, films: Path) -> Path:
    """Run the steps of a curation up to the split; reader C rejects every seventh study."""
    folder = root / "cur"
    texts = [" ".join(SENTENCES[label] for label in labels_of(i)) for i in range(N)]
    reports = ({"study": f"1.2.{i}", "patient": f"P{i}", "report": f"FINDINGS: {texts[i]}"} for i in range(N))
    sizes = Counter(len(labels_of(i)) for i in range(N))
    call("curate", "extract", folder, "--reports", write_rows(root / "reports.csv", reports), "--seed", 7)
    strata = ",".join(f"{n}:{size}" for n, size in sizes.items())
    call("curate", "sample", folder, "--strata", strata, "--images", films, "--workers", 1)
    readers = write_rows(root / "readers.csv", ({"reader": reader, "capacity": N} for reader in READERS))
    call("curate", "assign", folder, "--readers", readers)
    votes = []
    for row in pq.read_table(folder / "assignments.parquet").to_pylist():
        rejects = row["reader"] == "C" and int(row["study_id"].split(".")[-1]) % 7 == 0
        answer, labels = ("disagree", "None") if rejects else ("agree_all", "")
        votes.append({"study": row["study_id"], "reader": row["reader"], "answer": answer, "labels": labels})
    call("curate", "import-votes", folder, "--votes", write_rows(root / "votes.csv", votes))
    call("curate", "consensus", folder, "--resamples", 10)
    call("curate", "select", folder, "--target", N)
    facts = ({"study": f"1.2.{i}", "sex": "FM"[i % 2], "maker": MAKERS[i % 10]} for i in range(N))
    call("curate", "split", folder, "--facts", write_rows(root / "facts.csv", facts), "--best-of", 20)
    return folder


@dataclass(frozen=True)
class Walk:
    """What the commands of a maintainer wrote and printed; `own_id` maps an id to its UID."""

    inspected: str
    set_aside: list[dict[str, Any]]
    log: list[dict[str, Any]]
    refused: str
    report: str
    data: Path
    private: Path
    own_id: dict[str, str]
    differences: str


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    """Inspect, curate, build, leave out what publish refuses, and correct a label in the next version."""
    root = tmp_path_factory.mktemp("archive")
    films, data, private = (root / name for name in ("films", "data", "private"))
    write_films(films)
    inspected = call("inspect", films).stdout
    folder = curate(root, films)
    with (folder / "benchmark" / "mapping.yaml").open("a", encoding="utf-8") as file:
        file.write("equipment: {model: left out}\n")

    def build(mapping: Path, *words: object) -> None:
        call("build", films, "--mapping", mapping, "--id-key", root / "key", "--keep-going", *words)

    halves = ("--out", data, "--holdout", private)
    build(folder / "benchmark" / "mapping.yaml", *halves, "--log", root / "log.jsonl")
    publish = ("publish", data, "lab/chest", "--holdout", private, "--dry-run")
    refused = call(*publish, expect=1).stderr
    call("report", data, "--out", root / "report")
    with (folder / "benchmark" / "mapping.yaml").open("a", encoding="utf-8") as file:
        file.write(f"leave_out: [{BLANK_FILM}]\n")
    build(folder / "benchmark" / "mapping.yaml", *halves, "--overwrite", "--id-table", root / "ids.csv")
    call(*publish)
    with (root / "ids.csv").open(encoding="utf-8") as file:
        own_id = {row["id"]: row["own_id"] for row in csv.DictReader(file)}

    corrected = write_rows(root / "corrected.csv", [{"study": "1.2.1", "labels": "COPD", "why": "a CT of that day"}])
    call("curate", "refresh", root / "cur2", "--before", folder, "--corrections", corrected)
    later = ("--out", root / "data2", "--holdout", root / "private2", "--version", "1.1.0")
    build(root / "cur2" / "benchmark" / "mapping.yaml", *later, "--previous", data, "--previous-holdout", private)
    sides = ("--holdout-before", private, "--holdout-after", root / "private2")
    set_aside, log = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in (folder / "set_aside.jsonl", root / "log.jsonl")
    )
    report = (root / "report" / "report.html").read_text(encoding="utf-8")
    differences = call("diff", data, root / "data2", *sides).stdout
    return Walk(inspected, set_aside, log, refused, report, data, private, own_id, differences)


def test_films_are_counted_and_damaged_ones_left_out(walk: Walk) -> None:
    assert walk.inspected.split()[2:] == ["studies", "150", "images", "152", "files", "set", "aside", "2"]
    assert {entry["file"] for entry in walk.log if entry["what"] == "problem"} == {DAMAGED}
    assert {entry["file"] for entry in walk.log if entry["what"] == "set aside"} == {"110/2.dcm", "120/2.dcm"}
    assert "The terms of the institution apply" in (walk.data / "README.md").read_text()  # not under REVEAL-CXR's


def test_readers_are_asked_only_what_can_be_built(walk: Walk) -> None:
    reasons = {f"1.2.{i}": f"{i:03}/1.dcm: {reason}" for i, reason in UNUSABLE.items()}
    assert {entry["study_id"]: entry["reason"] for entry in walk.set_aside} == reasons


def test_every_fallback_is_named(walk: Walk) -> None:
    notes = {entry["file"]: entry for entry in walk.log if entry["what"] == "picture"}
    assert notes.keys() == {*FALLBACKS, BLANK_FILM}
    assert [name for name, text in FALLBACKS.items() if text not in " ".join(notes[name]["warnings"])] == []
    assert {name for name, note in notes.items() if note["fault"]} == {BLANK_FILM}
    assert [text for text in FALLBACKS.values() if text not in walk.report] == []


def test_blank_film_is_not_published(walk: Walk) -> None:
    assert walk.refused.count("--accept-film") == 1
    for name in ("multilabel", "holdout_inputs"):
        for images in pq.read_table(walk.data / name)["images"].to_pylist():
            assert min(np.ptp(np.asarray(Image.open(io.BytesIO(image["bytes"])))) for image in images) > 16


def test_no_study_is_lost_for_one_film(walk: Walk) -> None:
    studies = [*read_studies(walk.data, "released"), *read_studies(walk.private, "holdout")]
    by_number = {int(walk.own_id[study.study_id].split(".")[-1]): study for study in studies}
    assert by_number.keys() == set(range(N)) - UNUSABLE.keys()
    assert {len(study.images) for study in studies} == {1}
    assert {i: study.labels for i, study in by_number.items()} == {i: labels_of(i) for i in by_number}
    assert {image.model_raw for study in studies for image in study.images} == {None}


def test_halves_stay_balanced(walk: Walk) -> None:
    """The halves have the same size, and each label's standardized difference is below a quarter."""
    halves = read_studies(walk.data, "released"), read_studies(walk.private, "holdout")
    assert len(halves[0]) == len(halves[1]) == (N - len(UNUSABLE)) / 2
    for label in SENTENCES:
        p, q = (sum(label in study.labels for study in half) / len(half) for half in halves)
        assert abs(p - q) / np.sqrt((p * (1 - p) + q * (1 - q)) / 2) < 0.25


def test_a_refresh_changes_only_what_was_corrected(walk: Walk) -> None:
    changes = [line.split(": ")[1] for line in walk.differences.splitlines() if ": " in line]
    assert changes == ["Airspace opacity present -> absent", "Cardiomegaly present -> absent", "COPD absent -> present"]
    others = [line for line in walk.differences.splitlines() if line.startswith("Other ")]
    assert others == ["Other agreement (1):", "Other n_agree_all (1):"]
