"""Every accepted format has the same predictions as its canonical form; only content decides the format."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from reveal_bench.benchmarks import bundled
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.detection.lint import lint_detections
from reveal_bench.kinds.localization.lint import lint_predictions
from reveal_bench.masks import Rle, decode_mask, empty_rle, encode_mask, rasterize_polygons

WIDE, TALL, SMALL = (f"patient{i}_study1_view1_frontal" for i in (1, 2, 3))
EMPTY_WIDE = {"size": [2320, 2828], "counts": "PVWX6"}


def _mask(size, rows, columns):
    mask = np.zeros(size, bool)
    mask[slice(*rows), slice(*columns)] = True
    return encode_mask(mask)


SQUARE = _mask((2320, 2828), (100, 300), (200, 500))
SQUARE_JSON = {"size": [2320, 2828], "counts": SQUARE.counts}


def _errors(report):
    return [(p.line, p.field, p.rule, p.value) for p in report.problems if p.severity == "error"]


def _content(report):
    """Return the predictions without their line numbers."""
    return [(p.image_id, p.finding, p.points, p.cell, p.box, p.mask, p.score) for p in report.predictions]


# --- CheXlocalize


@pytest.mark.parametrize("indent", [None, 2])
def test_chexlocalize_segmentations(lint, indent):
    document = {WIDE: dict.fromkeys(CHEXLOCALIZE_FINDINGS, EMPTY_WIDE) | {"Edema": SQUARE_JSON}}
    report = lint(json.dumps(document, indent=indent))
    assert (report.format, report.n_entries, report.n_errors) == ("chexlocalize-segmentations", 10, 0)
    assert {p.finding: p.mask for p in report.predictions} == {
        "Cardiomegaly": Rle((2320, 2828), "PVWX6"),
        "Edema": SQUARE,
    }


def test_chexlocalize_problems_are_named_by_path_and_entry(lint):
    document = {
        WIDE: {"Edema": {"size": [320, 320], "counts": empty_rle((320, 320)).counts}, "Cardiomegaly": SQUARE_JSON},
        "stranger": {"Edema": SQUARE_JSON, "Cardiomegaly": SQUARE_JSON},
        SMALL: {"Airspace Opacity": [[1, 2]], "Fracture": SQUARE_JSON},
        TALL: 3,
    }
    report = lint(document)
    assert _errors(report) == [
        (1, f"{WIDE}.Edema.size", "rle-size", "[320, 320]"),
        (3, "stranger.Edema", "unknown-image", '"stranger"'),  # once per image
        (5, f"{SMALL}.Airspace Opacity", "wrong-type", "[[1, 2]]"),
        (6, f"{SMALL}.Fracture", "unknown-finding", '"Fracture"'),
        (6, f"{SMALL}.Fracture.size", "rle-size", "[2320, 2828]"),
        (None, TALL, "wrong-type", "3"),
    ]


def test_chexlocalize_salient_points(lint):
    report = lint({WIDE: {"Edema": [[1.5, 2], [3, 4]], "Cardiomegaly": []}, SMALL: {"Lung Opacity": [[5, 6]]}})
    assert (report.format, report.n_errors) == ("chexlocalize-points", 0)
    assert [(p.finding, p.points) for p in report.predictions] == [
        ("Edema", ((1.5, 2.0), (3.0, 4.0))),
        ("Airspace Opacity", ((5.0, 6.0),)),
    ]
    assert (WIDE, "Cardiomegaly") in report.missing_pairs  # an empty list has no prediction


def test_chexlocalize_annotations_are_filled_as_released_masks_are(lint):
    contours = [[[10.25, 10], [40, 10], [40, 50.75]], [[50, 60], [70, 60], [70, 80], [50, 80]]]
    report = lint({SMALL: {"img_size": [96, 80], "Airspace Opacity": contours}})
    assert (report.format, report.n_errors) == ("chexlocalize-annotations", 0)
    (prediction,) = report.predictions
    assert prediction.mask == rasterize_polygons(contours, (96, 80))
    # the square 50..70 x 60..80 with its outline has 21 x 21 pixels, and ends are inclusive
    assert decode_mask(prediction.mask)[60:81, 50:71].all()


def test_chexlocalize_annotations_check_the_image_size(lint):
    contour = [[[10, 10], [40, 10], [40, 50]]]
    report = lint(
        {SMALL: {"img_size": [80, 96], "Airspace Opacity": contour}, WIDE: {"Edema": contour}, TALL: {"img_size": [1]}}
    )
    assert _errors(report) == [
        (1, f"{SMALL}.img_size", "image-size", "[80, 96]"),
        (2, f"{WIDE}.img_size", "missing-field", ""),
        (3, f"{TALL}.img_size", "image-size", "[1]"),
    ]


def test_repeated_image_in_a_document_is_refused(lint):
    report = lint(f'{{"{WIDE}": {{"Edema": [[1, 2]]}}, "{WIDE}": {{"Edema": [[3, 4]]}}}}')
    assert _errors(report) == [(None, WIDE, "duplicate-key", f'"{WIDE}"')]


# --- COCO results


def test_coco_results_of_one_pair_are_merged(lint):
    """Masks 10..19 x 20..39 and 15..24 x 30..49 (rows x columns): 200 + 200 - 5 * 10 = 350 pixels."""
    first, second = _mask((2320, 2828), (10, 20), (20, 40)), _mask((2320, 2828), (15, 25), (30, 50))
    results = [
        {"image_id": WIDE, "category_id": "Edema", "score": 0.4, "bbox": [1, 2, 3, 4], "segmentation":
            {"size": [2320, 2828], "counts": first.counts}},
        {"image_id": WIDE, "category_id": "Edema", "score": 0.9, "bbox": [5, 6, 7, 8], "id": 7, "area": 200},
        {"image_id": WIDE, "category_id": "Edema", "score": 0.1, "segmentation":
            {"size": [2320, 2828], "counts": second.counts}},
        {"image_id": TALL, "category": "pleural effusion", "score": 0.2, "bbox": [1, 1, 2, 2]},
    ]  # fmt: skip
    report = lint(json.dumps(results))
    assert (report.format, report.n_entries, report.n_errors) == ("coco-results", 4, 0)
    edema, effusion = report.predictions
    assert (edema.score, edema.box, edema.line) == (0.9, (5.0, 6.0, 7.0, 8.0), 1)
    assert decode_mask(edema.mask).sum() == 350
    assert np.array_equal(decode_mask(edema.mask), decode_mask(first) | decode_mask(second))
    assert (effusion.finding, effusion.box) == ("Pleural Effusion", (1.0, 1.0, 2.0, 2.0))


def test_union_of_random_masks_equals_the_dense_union(lint):
    rng = np.random.default_rng(1)
    for density in (0.0, 0.01, 0.3, 0.7, 1.0):
        masks = rng.random((3, 96, 80)) < density
        results = [
            {"image_id": SMALL, "finding": "Airspace Opacity", "score": 0.5,
             "segmentation": {"size": [96, 80], "counts": encode_mask(mask).counts}}
            for mask in masks
        ]  # fmt: skip
        (prediction,) = lint(json.dumps(results)).predictions
        assert prediction.mask == encode_mask(masks.any(axis=0))


def test_coco_flat_polygons_and_category_numbers(lint):
    results = [{"image_id": SMALL, "category_id": "Airspace Opacity", "segmentation": [[10, 10, 40, 10, 40, 50]]}]
    report = lint(json.dumps(results))
    assert report.n_errors == 0
    (prediction,) = report.predictions
    assert prediction.mask == rasterize_polygons([[(10, 10), (40, 10), (40, 50)]], (96, 80))
    for number in (0, 4):  # it is unknown whether categories are counted from 0 or 1
        report = lint(json.dumps([results[0] | {"category_id": number}]))
        assert [p.rule for p in report.problems if p.severity == "error"] == ["category-number"]
        assert "numeric ids need `--instances INSTANCES.json`" in report.render()


def test_coco_problems(lint):
    results = [
        {"image_id": 7, "category_id": 0, "bbox": [1, 2, 3]},
        5,
        {"image_id": SMALL, "category_id": "Edema", "segmentation": [[1, 2, 3]], "point": [1, 2]},
        {"image_id": SMALL, "score": 3, "bbox": [70, 0, 20, 5]},
    ]
    assert _errors(lint(json.dumps(results))) == [
        (1, "image_id", "image-number", "7"),
        (1, "category_id", "category-number", "0"),
        (1, "bbox", "wrong-type", "[1, 2, 3]"),
        (2, "", "not-an-object", "5"),
        (3, "point", "unknown-field", '"point"'),
        (3, "segmentation[0][0]", "wrong-type", "1"),
        (3, "segmentation[0][1]", "wrong-type", "2"),
        (3, "segmentation[0][2]", "wrong-type", "3"),
        (4, "category_id", "missing-field", f'{{"image_id": "{SMALL}", "score": 3, "box": [70, 0, 20, 5]}}'),
        (4, "bbox", "outside-image", "[70, 0, 20, 5]"),
        (4, "score", "score-range", "3"),
    ]


def test_coco_dataset_is_refused_with_a_hint(lint):
    report = lint({"images": [], "annotations": [], "categories": []})
    assert _errors(report) == [(None, "", "format", '["images", "annotations", "categories"]')]
    assert "COCO results are a list" in report.problems[0].hint


# --- encoding, detection


def test_byte_order_mark_is_skipped_and_reported(lint, prediction):
    report = lint(b"\xef\xbb\xbf" + json.dumps(prediction).encode())
    assert report.ok
    assert report.problems[0].rule == "byte-order-mark"


@pytest.mark.parametrize(
    ("content", "rule", "hint"),
    [
        (b"", "empty-file", ""),
        (b" \n\n", "empty-file", ""),
        (json.dumps({"a": 1}).encode("utf-16"), "encoding", "UTF-8"),
        (f"{json.dumps({'a': 1})}\n".encode("utf-16-le") * 9, "encoding", "UTF-8"),  # once, not for every line
        (b"PK\x03\x04rest", "format", "ZIP"),
        (b"\x80\x04\x95", "format", "pickle"),
        (b"\x89PNG\r\n", "format", "image"),
        (bytes(range(129, 256)) * 40, "format", "JSON lines or CSV"),
        (b"\x93NUMPY\x01\x00v\x00{}", "format", "JSON lines or CSV"),
        (b"PAR1nonsense", "table-syntax", ""),
        (gzip.compress(b"abc" * 99, mtime=0)[:-20], "compression", ""),
        (gzip.compress(gzip.compress(b"abc", mtime=0), mtime=0), "compression", "once"),
        (b"\x28\xb5\x2f\xfdnonsense", "compression", ""),
        (b"image_id,finding,cell\n\xff,b,c", "encoding", "UTF-8"),
        (b"just some words", "unknown-column", "known: image_id"),
    ],
)
def test_files_of_other_kinds_are_refused_with_a_reason(lint, content, rule, hint):
    report = lint(content)
    assert not report.ok
    assert report.problems[0].rule == rule
    assert hint in report.problems[0].hint
    assert report.missing_pairs == ()


@pytest.mark.parametrize(
    ("line", "rule", "part"),
    [
        (b'{"image_id": "a"', "json-syntax", "ends too early, at column 17"),
        (b"{'image_id': 'a'}", "json-syntax", 'before "\'"'),
        (b'{"image_id": "a\x01"}', "control-character", "\\x01"),
        (b'{"image_id": "\xff"}', "encoding", "byte 15 is 0xff"),
        (b'{"image_id": "a", "score": 1e999999, "x": {"y": 1, "y": 2}}', "duplicate-key", '"y"'),
        (b'{"score": ' + b"9" * 5000 + b"}", "number-size", "thousands of digits"),
        (b'{"score": 1} {"score": 2}', "json-syntax", "Extra data"),
    ],
)
def test_broken_lines_do_not_hide_the_next(lint, prediction, line, rule, part):
    report = lint(line + b"\n" + json.dumps(prediction).encode())
    assert (1, rule) in [(p.line, p.rule) for p in report.problems]
    assert part in next(p.message for p in report.problems if p.rule == rule)
    assert {p.line for p in report.problems if p.severity == "error"} == {1}


@pytest.mark.parametrize(
    "line",
    [
        '{"image_id": "a", "image_id": "b"}',
        '{"image_id": "\\"", "finding": "x", "finding": "y"}',
        # an escaped quotation mark, so that the number of quotation marks stays even without the key
        '{"finding": "\\u0022\\u0022", "image_id": 1, "image_id": 2}',
        '{"rle": {"size": [1, 2], "size": [3, 4]}}',
        '{"image_id": "a", "image\\u005fid": "b"}',
    ],
)
def test_duplicate_keys_are_found(lint, line):
    assert "duplicate-key" in {problem.rule for problem in lint(line).problems}


def test_escapes_are_not_duplicate_keys(lint):
    mask = _mask((96, 80), (44, 96), (0, 1))  # a first run of 44 = 12 + 32 is written as a backslash and "1"
    assert mask.counts.startswith("\\1")
    line = {"image_id": SMALL, "finding": "Airspace Opacity", "rle": {"size": [96, 80], "counts": mask.counts}}
    assert lint(line).predictions[0].mask == mask


# --- agreement with the schema, and with its examples


@pytest.mark.parametrize(("name", "linter"), [("localization", lint_predictions), ("detection", lint_detections)])
def test_documentation_examples_are_valid_except_their_ids(name, linter, manifest):
    path = bundled("submissions") / "examples" / f"{name}.jsonl"
    report = linter(path, manifest)
    assert report.n_entries > 4
    assert {rule for _, _, rule, _ in _errors(report)} <= {"unknown-image", "missing-pairs"}


# One point, box and polygons, two masks, three scores; localization takes a cell, too, but a point only once.
@pytest.mark.parametrize(
    ("name", "linter", "n_sound"), [("localization", lint_predictions, 9), ("detection", lint_detections, 8)]
)
def test_linter_and_schema_agree_on_single_lines(name, linter, n_sound, manifest, prediction, tmp_path):
    """Both refuse the same malformed lines; only the linter checks ids, image borders and grids."""
    from jsonschema import Draft202012Validator

    schema = json.loads((bundled("submissions") / "schema" / f"{name}.schema.json").read_text())
    validator = Draft202012Validator(schema)
    knows_the_split = {"unknown-image", "unknown-finding", "outside-image", "cell", "rle-size", "rle-sum",
                       "rle-overflow", "rle-truncated", "rle-negative-run"}  # fmt: skip
    values = [
        *(None, True, 0, 1, -1, 0.5, 50.0, "", "A1", "a\n", "x" * 101, [], {}),
        *([1, 2], [[1, 2]], [1, 2, 3, 4], [0, 0, 0, 0], [[[1, 2], [3, 4], [5, 1]]], [[[1, 2]]]),
        *(SQUARE_JSON, {"size": [2320.0, 2828], "counts": "PVWX6"}, {"size": ["1", 2], "counts": "0"}),
        *({"size": [1, 2], "counts": ""}, {"size": [1, 2]}),
    ]
    path = tmp_path / "predictions.jsonl"
    n_accepted = 0
    for field in ("image_id", "finding", "point", "points", "cell", "box", "rle", "polygons", "score", "colour"):
        for value in values:
            line = prediction | {"score": 0.5, field: value}
            path.write_text(json.dumps(line))
            rules = {rule for _, _, rule, _ in _errors(linter(path, manifest))} - {"missing-pairs"}
            if validator.is_valid(line):
                assert rules <= knows_the_split, line
                n_accepted += not rules
            else:
                assert rules, line
    assert n_accepted == n_sound
