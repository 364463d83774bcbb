"""Misses to readers and back, through the real form for errors; and refusals."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import LocalizationPrediction, LocalizationRecord
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.reports.misses import read_reviews, write_misses
from reveal_bench.reports.run_errors import categorize, reading_order, shares
from tests.conftest import annotate

EDEMA, LESION = "Edema", "Lung Lesion"
SIZE = (80, 121)  # the central square begins at x = 20.5
N = 12
GRID = Grid(8)


def record_of(i):
    """Edema fills C3; a lesion covers the corner of four cells, at (60.5, 40)."""
    edema, lesion = np.zeros(SIZE, bool), np.zeros(SIZE, bool)
    edema[20:30, 41:50] = True
    lesion[38:42, 59:63] = True
    drawn = (annotate(EDEMA, edema), annotate(LESION, lesion))
    status = {EDEMA: 1, LESION: 1}
    return LocalizationRecord(f"image{i}", f"p{i}", f"s{i}", "PA", SIZE[1], SIZE[0], status, drawn)


RECORDS = [record_of(i) for i in range(N)]
ELSEWHERE = ("A1", "H1", "A8", "H8", "B7", "G7")


def predictions(shift):
    """Edema: every third a hit; lesions, and the other edemas: far from the reference."""
    result = []
    for i, record in enumerate(RECORDS):
        aside = ELSEWHERE[(i * shift) % len(ELSEWHERE)]
        result.append(LocalizationPrediction(record.image_id, EDEMA, cell=aside if i % 3 else "C3"))
        result.append(LocalizationPrediction(record.image_id, LESION, cell=aside))
    return result


def open_picture(image_id):
    """A picture whose left half is black and right half white, with something in its metadata."""
    values = np.zeros(SIZE, np.uint8)
    values[:, 60:] = 200 + int(image_id.removeprefix("image"))
    picture = Image.fromarray(values)
    picture.info["name"] = "secret"
    return picture


@pytest.fixture
def ours():
    return {name: categorize(predictions(shift), RECORDS, grid=8) for name, shift in (("gpt-x", 1), ("med-y", 5))}


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_what_readers_get_is_blinded_and_each_miss_is_there_once(tmp_path, ours):
    counts = write_misses(tmp_path / "out", ours, RECORDS, open_picture, grid=8, seed=3)
    misses, key = lines_of(tmp_path / "out/for_readers/misses.jsonl"), lines_of(tmp_path / "out/key.jsonl")
    wanted = {
        (c.image_id, c.finding, c.cell) for cases in ours.values() for c in cases if c.category == "miss_unreviewed"
    }
    assert {(row["image_id"], row["finding"], row["cell"]) for row in key} == wanted
    assert counts == {name: sum(f == name for _, f, _ in wanted) for name in (EDEMA, LESION)}
    assert len(misses) == len(key) == len(wanted) == sum(counts.values())
    for row, meant in zip(misses, key, strict=True):
        column, line = GRID.parse(meant["cell"])
        assert row["id"] == meant["id"]
        assert row["grid"] == [8, 8]
        assert row["cell"] == [line, column]
        # by hand: x 41 to 50 is in column C (40.5 to 50.5); x 59 to 63 around the edge D | E at 60.5
        assert row["reference"] == {EDEMA: [[2, 2]], LESION: [[3, 3], [3, 4], [4, 3], [4, 4]]}[row["finding"]]
    both = [row for row in key if len(row["models"]) == 2]
    assert both, "the two models have misses in common, which are read once"
    seen = "".join(p.read_text() for p in (tmp_path / "out/for_readers").glob("*.jsonl"))
    assert not any(secret in seen for secret in ("gpt-x", "med-y", "image1", "patient", "p1_"))


def test_pictures_are_the_central_squares_in_their_own_pixels(tmp_path, ours):
    write_misses(tmp_path / "out", ours, RECORDS, open_picture, grid=8)
    misses, key = lines_of(tmp_path / "out/for_readers/misses.jsonl"), lines_of(tmp_path / "out/key.jsonl")
    for row, meant in zip(misses, key, strict=True):
        path = tmp_path / "out/for_readers" / row["image"]
        with Image.open(path) as picture:
            assert (picture.size, picture.mode, picture.format) == ((80, 80), "L", "PNG")
            assert picture.info == {}
            values = np.asarray(picture)
        assert values[:, :40].max() == 0  # from x = 20 on, black up to x = 60
        assert set(np.unique(values[:, 40:])) == {200 + int(meant["image_id"].removeprefix("image"))}
    files = sorted(path.name for path in (tmp_path / "out/for_readers/pictures").iterdir())
    assert files == [f"p{i + 1:05d}.png" for i in range(len({row["image_id"] for row in key}))]
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700


def test_there_and_back_through_the_form(tmp_path, ours):
    """Readers call the left half of the square a position error, the rest an anatomy error; Ben cannot read some."""
    from reveal_leaderboard.readers.forms import FORMS
    from reveal_leaderboard.readers.images import ImageCache
    from reveal_leaderboard.readers.misses import prepare_misses
    from reveal_leaderboard.readers.store import ReaderAnswer
    from reveal_leaderboard.readers.upkeep import export_answers

    write_misses(tmp_path / "out", ours, RECORDS, open_picture, grid=8, seed=3)
    data = tmp_path / "readings"
    folder = tmp_path / "out/for_readers"
    readings = prepare_misses(data, folder / "misses.jsonl", folder, {"Ada": 99, "Ben": 99}, per_item=2, seed=3)
    images = ImageCache(folder)
    for number, (reader, _, item) in enumerate(readings.listed()):
        content = readings.item(item).content
        visible = FORMS["errors"].panel(content)["overlays"]
        left = next(one["rect"][0] for one in visible if one["kind"] == "model")
        facts, _ = images.get(readings.item(item).films[0])
        assert (facts["height"], facts["width"]) == (80, 80)
        category = "position_error" if left < 0.5 else "anatomy_error"
        answer = FORMS["errors"].read(content, "cannot_read" if reader == "Ben" and number % 2 else category, "", None)
        readings.put(ReaderAnswer(reader, item, *answer), f"key{number}")
    n_misses = len(lines_of(tmp_path / "out/key.jsonl"))
    assert export_answers(readings, tmp_path / "answers.csv") == 2 * n_misses  # and no partial hit among them
    reviews = read_reviews(tmp_path / "answers.csv", tmp_path / "out/key.jsonl")
    assert len(reviews) == n_misses
    for model, shift in (("gpt-x", 1), ("med-y", 5)):
        after = categorize(predictions(shift), RECORDS, grid=8, reviews=reviews)
        for before, case in zip(ours[model], after, strict=True):
            if before.category != "miss_unreviewed":
                assert case == before
            else:
                assert case.source == "reader"
                assert case.category == ("position" if case.cell[0] < "E" else "anatomy")
    done = {"gpt-x": categorize(predictions(1), RECORDS, grid=8, reviews=reviews)}
    with pytest.raises(ValueError, match="must have a miss without overlap that no reader has judged, got none"):
        write_misses(tmp_path / "again", done, RECORDS, open_picture, grid=8)


def test_at_most_so_many_of_each_model_and_finding(tmp_path, ours):
    counts = write_misses(
        tmp_path / "out", {"a": ours["gpt-x"]}, RECORDS, open_picture, grid=8, seed=1, max_per_finding=3
    )
    assert counts == {EDEMA: 3, LESION: 3}
    key = lines_of(tmp_path / "out/key.jsonl")
    lesions = [case for case in ours["gpt-x"] if case.finding == LESION]
    first = sorted(lesions, key=lambda case: reading_order(case, 1))[:3]
    assert {row["image_id"] for row in key if row["finding"] == LESION} == {case.image_id for case in first}
    # those three represent the others, and are not asked about again
    reviews = {(row["image_id"], row["finding"], 8, row["cell"]): "anatomy" for row in key}
    after = categorize(predictions(1), RECORDS, grid=8, reviews=reviews)
    by_category = {s.category: s for s in shares(after, resampling=Resampling(20, 1)) if s.finding == LESION}
    assert (by_category["anatomy"].estimate.value, by_category["anatomy"].n_reviewed) == (1.0, 3)
    more = write_misses(tmp_path / "more", {"a": after}, RECORDS, open_picture, grid=8, seed=1, max_per_finding=5)
    assert more == {EDEMA: 2, LESION: 2}


def test_same_seed_same_bytes(tmp_path, ours):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_misses(tmp_path / name, ours, RECORDS, open_picture, grid=8, seed=seed)
    a, b, c = (
        {p.relative_to(tmp_path / name).as_posix(): p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in "abc"
    )
    assert a == b
    assert a["key.jsonl"] != c["key.jsonl"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_per_finding": 0}, "`max_per_finding` must be at least 1, got 0"),
        ({"grid": 16}, r"`grid` must be that of `case_errors\['gpt-x'\]`, 8, got 16"),
        ({"records": RECORDS[1:]}, r"reference of every case, \('image0', 'Lung Lesion'\) is missing"),
        ({"open_picture": lambda _: Image.new("L", (80, 80))}, r"size \[80, 121\], got \[80, 80\]"),
        ({"case_errors": {}}, "no reader has judged, got none"),
    ],
    ids=["number", "grid", "records", "picture", "nothing"],
)
def test_what_is_refused_leaves_nothing_behind(tmp_path, ours, change, message):
    inputs = {"case_errors": ours, "records": RECORDS, "open_picture": open_picture, "grid": 8} | change
    with pytest.raises(ValueError, match=message):
        write_misses(tmp_path / "out", **inputs)
    assert not list(tmp_path.iterdir())


def test_the_folder_must_be_new(tmp_path, ours):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="`out` must be a new or empty folder, got"):
        write_misses(tmp_path, ours, RECORDS, open_picture, grid=8)
    (tmp_path / "empty").mkdir()
    write_misses(tmp_path / "empty", ours, RECORDS, open_picture, grid=8)
    assert (tmp_path / "empty/key.jsonl").is_file()


HEADER = ["id", "finding", "reader", "category", "comment"]
ROW = ["m00001", EDEMA, "Ada", "position_error", ""]
KEY = {"id": "m00001", "image_id": "image1", "finding": EDEMA, "grid": 8, "cell": "A1", "models": ["gpt-x"]}


def reviews_of(tmp_path, rows, key=(KEY,)):
    with (tmp_path / "answers.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    text = "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in key)
    (tmp_path / "key.jsonl").write_text(text, encoding="utf-8")
    return read_reviews(tmp_path / "answers.csv")  # the key is in the same folder


@pytest.mark.parametrize(
    ("categories", "expected"),
    [
        (["position_error"], "position"),
        (["anatomy_error", "anatomy_error", "position_error"], "anatomy"),
        (["anatomy_error", "position_error"], None),  # a tie stays open
        (["anatomy_error", "cannot_read"], "anatomy"),
        (["cannot_read"], None),
        ([], None),
    ],
)
def test_most_readers_decide(tmp_path, categories, expected):
    rows = [["m00001", EDEMA, f"Reader {i}", category, ""] for i, category in enumerate(categories)]
    result = reviews_of(tmp_path, [HEADER, *rows])
    assert result == ({} if expected is None else {("image1", EDEMA, 8, "A1"): expected})


@pytest.mark.parametrize(
    ("rows", "key", "message"),
    [
        (
            [["id", "answer"], ROW],
            [KEY],
            "answers.csv:1: `columns` must be id,finding,reader,category,comment, got id,answer",
        ),
        ([HEADER, ROW[:-1]], [KEY], "answers.csv:2: `row` must have 5 cells"),
        ([HEADER, ["m9", *ROW[1:]]], [KEY], "answers.csv, line 2: `id` must be in key.jsonl, got 'm9'"),
        ([HEADER, ["m00001", LESION, *ROW[2:]]], [KEY], "`finding` must be 'Edema', as in the key, got 'Lung Lesion'"),
        ([HEADER, [*ROW[:3], "partial_hit", ""]], [KEY], "`category` must be one of .*, got 'partial_hit'"),
        ([HEADER, ROW, ROW], [KEY], "line 3: `reader` must answer m00001 once, got 'Ada' twice"),
        ([HEADER, ROW], ["{"], "key.jsonl, line 1: must be JSON, got '{'"),
        ([HEADER, ROW], [{"id": "m1"}], "key.jsonl, line 1: the fields must be cell, finding, grid, id, image_id, mod"),
        ([HEADER, ROW], [KEY, KEY], "key.jsonl, line 2: `id` must occur only once, got 'm00001' twice"),
        ([HEADER, ROW], [KEY | {"cell": "Z9"}], "key.jsonl, line 1: `cell` must be in the 8 x 8 grid"),
    ],
)
def test_broken_answers_and_keys(tmp_path, rows, key, message):
    with pytest.raises(ValueError, match=message):
        reviews_of(tmp_path, rows, key)


def test_metadata_of_a_picture_are_dropped(tmp_path, ours):
    """A PNG with text in it: nothing but pixels reaches the readers."""
    named = PngImagePlugin.PngInfo()
    named.add_text("PatientName", "Doe^Jane")
    open_picture("image0").save(tmp_path / "source.png", pnginfo=named)
    write_misses(
        tmp_path / "out", {"m": ours["gpt-x"][1:2]}, RECORDS, lambda _: Image.open(tmp_path / "source.png"), grid=8
    )
    (path,) = (tmp_path / "out/for_readers/pictures").iterdir()
    assert b"Doe" not in path.read_bytes()
    assert b"tEXt" not in path.read_bytes()
