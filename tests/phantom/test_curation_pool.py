"""The pool without pixels: the same studies as with pixels, whatever is not drawn, and reproducible."""

import csv
import json
from itertools import islice

import pytest

from reveal_bench.phantom import write_reveal
from reveal_bench.phantom.curation import FACTS, FIXED_SIDES, _sides, write_pool
from reveal_bench.phantom.reveal_findings import draw_reveal_film, sides
from reveal_bench.phantom.reveal_studies import studies
from reveal_bench.phantom.votes import SUGGESTION_RIGHT

N = 24
TABLES = ("reports.csv", "suggested.csv", "facts.csv", "truth.jsonl", "SYNTHETIC.txt")


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("pool") / "small"
    return out, write_pool(out, N, 3, workers=1)


@pytest.fixture(scope="module")
def with_pixels(tmp_path_factory):
    out = tmp_path_factory.mktemp("pixels")
    write_reveal(out, n_studies=N, seed=3, long_side=64, stage="pool")
    return out


BAD = {
    "no studies": ({"n_studies": 0}, "must be at least 1, got 0 and 1"),
    "fewer than none": ({"n_studies": -5}, "must be at least 1, got -5"),
    "no workers": ({"n_studies": 1, "workers": 0}, "must be at least 1, got 1 and 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(tmp_path, name):
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        write_pool(tmp_path / "new", **{"workers": 1, **options})
    assert not (tmp_path / "new").exists()


def test_a_full_folder_is_refused(tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(ValueError, match="`out` must be a new or empty folder"):
        write_pool(tmp_path, 1)


def test_one_study(tmp_path):
    assert write_pool(tmp_path, 1, 5)["patients"] == 1
    assert {path.name for path in tmp_path.iterdir()} == set(TABLES)
    assert [len(rows(tmp_path / name)) for name in TABLES[:3]] == [1, 1, 1]


def test_the_same_studies_as_with_pixels(small, with_pixels):
    out, _ = small
    for mine, theirs in zip(rows(out / "reports.csv"), rows(with_pixels / "reports.csv"), strict=True):
        assert (mine["study"], mine["patient"], mine["report"]) == (
            theirs["study_uid"],
            theirs["case_id"],
            theirs["report"],
        )
    for mine, theirs in zip(lines(out / "truth.jsonl"), lines(with_pixels / "truth.jsonl"), strict=True):
        assert mine == {name: value for name, value in theirs.items() if name not in ("images", "n_agree_all")}
    suggested = {vote["study_uid"]: vote["suggested"] for vote in rows(with_pixels / "votes.csv")}
    assert {one["study"]: one["labels"] for one in rows(out / "suggested.csv")} == suggested


def test_facts_are_those_of_the_headers(small, with_pixels):
    import pydicom

    out, _ = small
    headers = {}
    for path in (with_pixels / "images").rglob("*"):
        if path.is_file():
            header = pydicom.dcmread(path, stop_before_pixels=True, force=True)
            headers[header.get("SOPInstanceUID")] = header
    first = {one["study_uid"]: one["images"][0]["sop_uid"] for one in lines(with_pixels / "truth.jsonl")}
    facts = rows(out / "facts.csv")
    assert len(facts) == N
    assert list(facts[0]) == ["study", *FACTS]
    for one in facts:
        header = headers[first[one["study"]]]

        def text(keyword, header=header):
            value = header.get(keyword)
            return (
                "" if value in (None, "") else "\\".join(map(str, value)) if keyword.endswith("Spacing") else str(value)
            )

        assert one["manufacturer"] == text("Manufacturer")
        assert one["model"] == text("ManufacturerModelName")
        assert one["detector_type"] == text("DetectorType")
        assert one["view_position"] == text("ViewPosition")
        assert one["distance_source_to_detector"] == text("DistanceSourceToDetector")
        assert one["kvp"] == text("KVP")
        assert one["pixel_spacing"] == (text("ImagerPixelSpacing") or text("PixelSpacing"))
        mas = float(text("ExposureInuAs")) / 1000 if text("ExposureInuAs") else float(text("Exposure"))
        assert float(one["exposure_mas"]) == mas


def test_demographics_are_those_of_the_study(small):
    out, _ = small
    for fact, truth in zip(rows(out / "facts.csv"), lines(out / "truth.jsonl"), strict=True):
        assert (fact["sex"], fact["race"], fact["patient_class"]) == (
            truth["sex"],
            truth["race"],
            truth["patient_class"],
        )
        age = truth["age"]
        band = "unknown" if age is None else "80+" if age >= 80 else f"{age // 10}0-{age // 10}9"
        assert fact["age_band"] == band


def test_a_film_that_is_drawn_in_part_has_the_same_sides():
    """Against the whole drawing, in 60 studies; all labels are among them."""
    seen = set()
    for study in islice(studies("pool", seed=12), 60):
        anatomy, film = draw_reveal_film(study, study.images[0])
        assert _sides(study) == {label: sides(anatomy, film.contours[label]) for label in study.labels}
        seen |= set(study.labels)
    assert seen >= set(FIXED_SIDES) | {"Airspace opacity", "Pneumothorax", "Lung mass", "Pleural thickening"}


def test_same_bytes_whatever_the_number_of_processes_and_studies(tmp_path, monkeypatch):
    monkeypatch.setattr("reveal_bench.phantom.curation.CHUNK", 4)
    seen = []
    for name, n, workers in (("one", 22, 1), ("two", 22, 2), ("few", 9, 1)):
        progress = (lambda done, total: seen.append((done, total))) if name == "two" else None
        write_pool(tmp_path / name, n, 1, workers=workers, progress=progress)
    assert seen == [(done, 22) for done in range(1, 23)]
    for table in TABLES:
        one, two, few = ((tmp_path / name / table).read_bytes() for name in ("one", "two", "few"))
        assert one == two
        assert one.startswith(few)
    write_pool(tmp_path / "other", 22, 2, workers=1)
    assert (tmp_path / "other" / "reports.csv").read_bytes() != (tmp_path / "one" / "reports.csv").read_bytes()


def test_counts_are_those_of_the_tables(small):
    out, counts = small
    truth = lines(out / "truth.jsonl")
    assert counts == {
        "studies": N,
        "patients": len({one["case_id"] for one in truth}),
        "right suggestions": sum(one["suggested"] == one["labels"] for one in truth),
    }
    assert counts["patients"] == 20  # every sixth is a further one
    spelled = ["; ".join(one["suggested"]) or "None" for one in truth]
    assert [one["labels"] for one in rows(out / "suggested.csv")] == spelled
    assert abs(counts["right suggestions"] / N - SUGGESTION_RIGHT) < 4 * 0.099
