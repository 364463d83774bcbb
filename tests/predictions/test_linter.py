"""A malformed file for every rule: line, field, rule and value are written by hand from the specification."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import reveal_bench.predictions as predictions_package
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.detection.lint import lint_detections
from reveal_bench.kinds.localization.arrays import LocalizationCodec
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.lint import lint_predictions
from reveal_bench.kinds.localization.records import LocalizationPrediction
from reveal_bench.masks import Rle, decode_mask, empty_rle, encode_mask, rasterize_polygons
from reveal_bench.predictions import RULES, Limits
from reveal_bench.predictions.limits import LintOptions

WIDE, TALL, SMALL = (f"patient{i}_study1_view1_frontal" for i in (1, 2, 3))
AS_PATH = "patient1/study1/view1_frontal.jpg"
EMPTY_WIDE = "PVWX6"  # the empty mask of 2320 x 2828 in CheXlocalize's own files


def _line(**changes):
    """Return a valid line with changes; a field set to ... is omitted."""
    fields = {"image_id": WIDE, "finding": "Edema", "point": [10, 20], **changes}
    return {key: value for key, value in fields.items() if value is not ...}


def _without_point(**changes):
    return _line(point=..., **changes)


def _rle(size, counts, **changes):
    return _without_point(rle={"size": size, "counts": counts}, **changes)


def _places(report):
    return [(problem.rule, problem.field, problem.value) for problem in report.problems if problem.severity == "error"]


SOUND = [
    _line(),
    _line(point=[0, 0]),
    _line(point=[2827.999, 2319.5], score=0),
    _line(score=1),
    _line(point=..., points=[[1, 2], [3.5, 4]]),
    _without_point(cell="A1"),
    _without_point(cell="H8"),
    _without_point(box=[0, 0, 2828, 2320]),
    _without_point(box=[10.5, 20, 0.5, 1]),
    _without_point(polygons=[[[0, 0], [2828, 0], [2828, 2320]]]),
    _rle([2320, 2828], EMPTY_WIDE),
    _rle([2320.0, 2828], EMPTY_WIDE),
    _line(cell="D5", box=[1, 2, 3, 4], score=0.5),
]


@pytest.mark.parametrize("line", SOUND, ids=json.dumps)
def test_valid_lines_have_no_error(lint, line):
    report = lint(line)
    assert report.ok, report.render()
    assert len(report.predictions) == 1


# rule, field, printed value, part of the hint, line
MALFORMED = [
    # ids and names
    ("unknown-image", "image_id", '"patient1_study1_view1_fronta"', WIDE, _line(image_id=WIDE[:-1])),
    ("unknown-image", "image_id", '"patient1/study1/view1_frontal.jpg"', f"mean {WIDE}?", _line(image_id=AS_PATH)),
    ("unknown-image", "image_id", '"zzz"', f"look like {WIDE}", _line(image_id="zzz")),
    ("unknown-image", "image_id", '""', "look like", _line(image_id="")),
    ("wrong-type", "image_id", "true", "", _line(image_id=True)),
    ("image-number", "image_id", "1", "dtype=str", _line(image_id=1)),
    ("text-length", "image_id", '"' + "a" * 76 + "...", "", _line(image_id="a" * 201)),
    ("control-character", "image_id", '"patient\\x001"', "", _line(image_id="patient\x001")),
    ("unknown-finding", "finding", '"Cardiomegally"', "mean Cardiomegaly?", _line(finding="Cardiomegally")),
    ("unknown-finding", "finding", '"Pneumonia"', "Pneumothorax", _line(finding="Pneumonia")),
    ("control-character", "finding", '"Edema\\n"', "", _line(finding="Edema\n")),
    ("wrong-type", "finding", '["Edema"]', "", _line(finding=["Edema"])),
    # fields
    ("missing-field", "image_id", '{"finding": "Edema", "point": [10, 20]}', "", _line(image_id=...)),
    ("missing-field", "finding", f'{{"image_id": "{WIDE}", "point": [10, 20]}}', "", _line(finding=...)),
    ("missing-geometry", "", f'{{"image_id": "{WIDE}", "finding": "Edema"}}', "", _without_point()),
    ("unknown-field", "scores", '"scores"', "mean score?", _line(scores=0.5)),
    ("unknown-field", "model", '"model"', "known: image_id, finding", _line(model="x")),
    ("point-and-points", "points", "[[1, 2]]", "", _line(points=[[1, 2]])),
    # points
    ("outside-image", "point", "[2828, 20]", "start at 0", _line(point=[2828, 20])),
    ("outside-image", "point", "[20, 2400]", "exchanged", _line(point=[20, 2400])),
    ("outside-image", "point", "[-0.5, 20]", "", _line(point=[-0.5, 20])),
    ("wrong-type", "point", "[1]", "", _line(point=[1])),
    ("wrong-type", "point", '{"x": 1, "y": 2}', "", _line(point={"x": 1, "y": 2})),
    ("wrong-type", "point[1]", "true", "", _line(point=[1, True])),
    ("wrong-type", "point[0]", "null", "", _line(point=[None, 2])),
    ("number-as-text", "point[0]", '"12"', "without quotes", _line(point=["12", 2])),
    ("wrong-type", "point[0]", '"twelve"', "", _line(point=["twelve", 2])),
    ("not-finite", "point[1]", "nan", "", _line(point=[1, math.nan])),
    ("not-finite", "point[0]", "-inf", "", _line(point=[-math.inf, 1])),
    ("outside-image", "points[1]", "[5000, 1]", "", _line(point=..., points=[[1, 1], [5000, 1]])),
    ("wrong-type", "points", "[]", "", _line(point=..., points=[])),
    ("wrong-type", "points", f"[{'[1, 1], ' * 6}...]", "", _line(point=..., points=[[1, 1]] * 101)),
    # boxes
    ("outside-image", "box", "[2700, 10, 400, 50]", "", _without_point(box=[2700, 10, 400, 50])),
    ("outside-image", "box", "[500, 500, 2500, 2000]", "x1, y1, x2, y2", _without_point(box=[500, 500, 2500, 2000])),
    ("outside-image", "box", "[-1, 10, 20, 30]", "", _without_point(box=[-1, 10, 20, 30])),
    ("box-size", "box", "[10, 10, 0, 5]", "", _without_point(box=[10, 10, 0, 5])),
    ("box-size", "box", "[10, 10, 5, -2]", "", _without_point(box=[10, 10, 5, -2])),
    ("wrong-type", "box", "[1, 2, 3]", "width, height", _without_point(box=[1, 2, 3])),
    ("number-as-text", "box[3]", '"4"', "", _without_point(box=[1, 2, 3, "4"])),
    # cells
    ("cell", "cell", '"I1"', "finer grid", _without_point(cell="I1")),
    ("cell", "cell", '"A9"', "finer grid", _without_point(cell="A9")),
    ("cell", "cell", '"A0"', "", _without_point(cell="A0")),
    ("cell", "cell", '"d5"', "write D5", _without_point(cell="d5")),
    ("cell", "cell", '"5D"', "write D5", _without_point(cell="5D")),
    ("cell", "cell", '" D5"', "write D5", _without_point(cell=" D5")),
    ("cell", "cell", '"\uff245"', "", _without_point(cell="\uff245")),
    ("wrong-type", "cell", "[3, 4]", "", _without_point(cell=[3, 4])),
    # scores
    ("score-range", "score", "2.7", "logit", _line(score=2.7)),
    ("score-range", "score", "-0.01", "logit", _line(score=-0.01)),
    ("not-finite", "score", "nan", "", _line(score=math.nan)),
    ("number-as-text", "score", '"0.5"', "", _line(score="0.5")),
    ("wrong-type", "score", "true", "", _line(score=True)),
    ("wrong-type", "score", "null", "", _line(score=None)),
    # masks: 2320 x 2828 = 6560960 pixels
    ("rle-size", "rle.size", "[2828, 2320]", "height comes first", _rle([2828, 2320], EMPTY_WIDE)),
    ("rle-size", "rle.size", "[320, 320]", "resized to 320", _rle([320, 320], empty_rle((320, 320)).counts)),
    ("rle-size", "rle.size", "[256, 210]", "resized to 256", _rle([256, 210], empty_rle((256, 210)).counts)),
    ("wrong-type", "rle.size", "[0, 10]", "", _rle([0, 10], "0")),
    ("wrong-type", "rle.size", "[2320.5, 2828]", "", _rle([2320.5, 2828], EMPTY_WIDE)),
    ("wrong-type", "rle.size", "[2320]", "", _rle([2320], EMPTY_WIDE)),
    ("number-as-text", "rle.size[0]", '"2320"', "", _rle(["2320", 2828], EMPTY_WIDE)),
    ("wrong-type", "rle.counts", "[6560960]", "frPyObjects", _rle([2320, 2828], [6560960])),
    ("wrong-type", "rle", '"PVWX6"', "", _without_point(rle=EMPTY_WIDE)),
    ("wrong-type", "rle", '{"size": [2320, 2828]}', "", _without_point(rle={"size": [2320, 2828]})),
    ("rle-sum", "rle.counts", '"1"', "", _rle([2320, 2828], "1")),
    ("rle-sum", "rle.counts", '""', "", _rle([2320, 2828], "")),
    ("rle-overflow", "rle.counts", '"PVWX61"', "", _rle([2320, 2828], EMPTY_WIDE + "1")),
    ("rle-truncated", "rle.counts", '"PVWX"', "", _rle([2320, 2828], "PVWX")),
    ("rle-alphabet", "rle.counts", '"PVWX 6"', "", _rle([2320, 2828], "PVWX 6")),
    ("rle-alphabet", "rle.counts", '"PVWX\u00e9"', "", _rle([2320, 2828], "PVWX\u00e9")),
    ("rle-negative-run", "rle.counts", '"O"', "", _rle([2320, 2828], "O")),
    ("rle-code", "rle.counts", '"PPPPPPPP0"', "", _rle([2320, 2828], "PPPPPPPP0")),
    ("text-length", "rle.counts", '"' + "0" * 76 + "...", "", _rle([2320, 2828], "0" * 1_000_001)),
    # polygons
    ("wrong-type", "polygons[0]", "[[1, 1], [2, 2]]", "", _without_point(polygons=[[[1, 1], [2, 2]]])),
    ("wrong-type", "polygons", "[]", "", _without_point(polygons=[])),
    ("wrong-type", "polygons[1]", "7", "", _without_point(polygons=[[[1, 1], [2, 2], [3, 1]], 7])),
    ("outside-image", "polygons[0][1]", "[2829, 0]", "", _without_point(polygons=[[[0, 0], [2829, 0], [1, 1]]])),
    ("wrong-type", "polygons[0][0]", "[1]", "", _without_point(polygons=[[[1], [2, 2], [3, 1]]])),
    ("vertices", "polygons", "100001", "", _without_point(polygons=[[[1, 1]] * 100_001])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "field", "value", "hint", "line"), MALFORMED, ids=[f"{m[0]}-{m[1]}" for m in MALFORMED]
)
def test_each_rule_names_line_field_value_and_hint(lint, rule, field, value, hint, line):
    sound = _line(image_id=TALL, finding="Pleural Effusion")
    report = lint([sound, line])
    problems = [problem for problem in report.problems if problem.severity == "error"]
    assert [(p.line, p.rule, p.field, p.value) for p in problems] == [(2, rule, field, value)]
    assert value in problems[0].message
    assert hint in problems[0].hint or hint in problems[0].message
    assert report.predictions == ()


def test_message_is_as_specified(lint):
    report = lint(_without_point(box=[2700, 10, 400, 50]), name="predictions.jsonl")
    assert report.render().splitlines()[0] == (
        "predictions.jsonl:1: error: box: must be inside the image "
        f"{_without_point()['image_id']}, 2828 x 2320 (width x height), got [2700, 10, 400, 50]"
    )


def test_boxes_just_outside_get_advice_on_clipping(lint):
    """Two corners would also be inside the image: 100 < 2728 and 100 < 2220."""
    problem = lint(_without_point(box=[100, 100, 2728.0001, 2220])).problems[0]
    assert problem.hint.startswith("0.0001 pixels outside: clip boxes to the image")
    problem = lint(_without_point(box=[100, 100, 2731, 2220])).problems[0]
    assert "[x1, y1, x2, y2]?" in problem.hint


def test_all_problems_at_once(lint):
    """One line with seven mistakes and six lines with one mistake each: thirteen errors are reported."""
    worst = {
        "image_id": "nobody",
        "finding": "Pneumonia",
        "point": ["1", math.nan],
        "cell": "Z9",
        "score": 7,
        "colour": "red",
    }
    lines = [
        json.dumps(worst),
        '{"image_id": "a", "image_id": "b"',
        json.dumps(_line(point=[9999, 1])),
        "[]",
        json.dumps(_rle([2320, 2828], "1", finding="Cardiomegaly")),
        json.dumps(_line(point=[2, 2])),
        json.dumps(_line(image_id=SMALL, finding="lung_opacity", score="0.5")),
    ]
    report = lint("\n".join(lines))
    assert [(p.line, p.rule) for p in report.problems if p.severity == "error"] == [
        (1, "unknown-field"),
        (1, "unknown-image"),
        (1, "unknown-finding"),
        (1, "number-as-text"),
        (1, "not-finite"),
        (1, "cell"),
        (1, "score-range"),
        (2, "json-syntax"),
        (3, "outside-image"),
        (4, "not-an-object"),
        (7, "number-as-text"),
        (5, "rle-sum"),
        (6, "duplicate-pair"),
    ]
    assert {p.rule for p in report.problems if p.severity == "warning"} == {"finding-spelling", "missing-pairs"}
    assert report.n_entries == 5


def test_duplicate_pair_names_the_first_line(lint):
    report = lint([_line(), _line(image_id=TALL), _line(finding="edema", point=[1, 1])])
    (error,) = [problem for problem in report.problems if problem.severity == "error"]
    assert (error.line, error.rule, error.value) == (3, "duplicate-pair", f'["{WIDE}", "Edema"]')
    assert "already predicted in line 1" in error.message


def test_missing_pairs_are_an_error_unless_allowed(lint):
    lines = [_line(), _line(image_id=TALL, finding="Pleural Effusion")]
    missing = ((WIDE, "Cardiomegaly"), (SMALL, "Airspace Opacity"))

    strict = lint(lines, allow_missing=False)
    assert strict.missing_pairs == missing
    assert _places(strict) == [("missing-pairs", "", "")]
    assert strict.problems[0].message == (
        f"2 of 4 asked pairs have no prediction: {WIDE}, Cardiomegaly; {SMALL}, Airspace Opacity"
    )
    assert strict.predictions == ()

    tolerant = lint(lines, allow_missing=True)
    assert tolerant.ok
    assert tolerant.missing_pairs == missing
    assert [(p.severity, p.rule) for p in tolerant.problems] == [("warning", "missing-pairs")]
    assert len(tolerant.predictions) == 2
    assert tolerant.statistics["share_missing"] == 0.5


def test_a_pair_with_a_faulty_prediction_is_not_missing(lint):
    report = lint([_line(point=[-1, 0])], allow_missing=False)
    assert (WIDE, "Edema") not in report.missing_pairs


def test_pairs_not_asked_are_dropped_and_counted_once(lint):
    lines = [_line(), *(_line(finding=name) for name in ("Lung Lesion", "Pneumothorax", "Atelectasis"))]
    report = lint(lines)
    (warning,) = [problem for problem in report.problems if problem.rule == "not-asked"]
    assert (warning.severity, warning.line) == ("warning", 2)
    assert warning.message.startswith("3 predictions answer pairs that are not asked here: they are not scored")
    assert [prediction.finding for prediction in report.predictions] == ["Edema"]


def test_empty_masks_of_pairs_not_asked_are_normal_but_of_asked_pairs_warn(lint):
    empty = {"size": [2320, 2828], "counts": EMPTY_WIDE}
    report = lint([_without_point(finding=name, rle=empty) for name in CHEXLOCALIZE_FINDINGS])
    rules = [(problem.line, problem.rule) for problem in report.problems if problem.rule != "missing-pairs"]
    # Cardiomegaly and Edema are asked; they are second and fifth
    assert rules == [(2, "empty-mask"), (5, "empty-mask")]
    assert [prediction.finding for prediction in report.predictions] == ["Cardiomegaly", "Edema"]


def test_tolerated_spellings_are_normalized_and_reported_once(lint):
    report = lint([_line(image_id=SMALL, finding="Lung Opacity"), _line(finding="EDEMA")])
    warnings = {p.value: p.message for p in report.problems if p.rule == "finding-spelling"}
    assert warnings == {
        '"Lung Opacity"': 'read as Airspace Opacity in 1 entry, got "Lung Opacity"',
        '"EDEMA"': 'read as Edema in 1 entry, got "EDEMA"',
    }
    assert [prediction.finding for prediction in report.predictions] == ["Airspace Opacity", "Edema"]


def test_grid_is_from_the_manifest_unless_given(lint):
    fine = _without_point(cell="P16")
    assert _places(lint(fine)) == [("cell", "cell", '"P16"')]
    assert lint(fine, grid=16).ok
    with pytest.raises(ValueError, match=r"`n` must be in \[1, 26\], got 99"):
        lint(fine, grid=99)


def test_predictions_have_all_fields_of_the_line(lint):
    polygon = [[10, 10], [40, 10], [40, 50]]
    report = lint(
        [
            _line(points=[[1, 2.5], [3, 4]], point=..., cell="D5", box=[1, 2, 3, 4], score=0.25),
            _line(image_id=SMALL, finding="Airspace Opacity", point=..., polygons=[polygon]),
        ]
    )
    assert report.predictions[0] == LocalizationPrediction(
        WIDE, "Edema", ((1.0, 2.5), (3.0, 4.0)), "D5", (1.0, 2.0, 3.0, 4.0), None, 0.25, 1
    )
    assert report.predictions[1].mask == rasterize_polygons([polygon], (96, 80))
    assert report.predictions[1].line == 2


def test_contours_of_a_detection_become_its_mask(tmp_path, manifest):
    polygon, path = [[10, 10], [40, 10], [40, 50]], tmp_path / "detections.jsonl"
    path.write_text(
        json.dumps(_without_point(image_id=SMALL, finding="Airspace Opacity", polygons=[polygon], score=0.5))
    )
    (prediction,) = lint_detections(path, manifest).predictions
    assert (prediction.mask, prediction.score) == (rasterize_polygons([polygon], (96, 80)), 0.5)


def test_mask_overrides_polygons_with_a_warning(lint):
    polygons = [[[1, 1], [9, 1], [9, 9]]]
    report = lint(_rle([2320, 2828], EMPTY_WIDE, polygons=polygons))
    assert "two-masks" in {problem.rule for problem in report.problems}
    assert report.predictions[0].mask == Rle((2320, 2828), EMPTY_WIDE)


def test_blank_lines_count_in_line_numbers(lint, prediction):
    good, bad = json.dumps(prediction), json.dumps(prediction | {"finding": "Edma"})
    report = lint(f"\n{good}\n\n\n{bad}\n")
    assert [problem.line for problem in report.problems if problem.severity == "error"] == [5]


# --- the table of rules


def test_every_rule_of_the_table_is_used():
    """The `lint` fixture checks the other direction: reports name only rules of the table."""
    package = Path(predictions_package.__file__).parents[1]
    modules = [
        *(package / "kinds").rglob("*.py"),
        *(package / "predictions").glob("*.py"),
        package / "masks" / "run_lengths.py",
    ]
    sources = "".join(path.read_text() for path in modules if path.name != "rules.py")
    assert [rule for rule in RULES if f'"{rule}"' not in sources] == []


# --- the writer


def test_written_predictions_are_read_as_written(lint, manifest, tmp_path):
    mask = np.zeros((96, 80), bool)
    mask[10:30, 20:50] = True
    predictions = (
        LocalizationPrediction(WIDE, "Cardiomegaly", points=((1.0, 2.5),), score=0.125, line=1),
        LocalizationPrediction(WIDE, "Edema", points=((1.0, 2.0), (3.0, 4.0)), cell="D5", line=2),
        LocalizationPrediction(TALL, "Pleural Effusion", box=(1.5, 2.0, 3.0, 4.0), line=3),
        LocalizationPrediction(SMALL, "Airspace Opacity", mask=encode_mask(mask), line=4),
    )
    text = predictions_to_jsonl(predictions)
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    report = lint_predictions(path, manifest)
    assert report.problems == ()
    assert report.predictions == predictions
    assert predictions_to_jsonl(report.predictions) == text
    assert np.array_equal(decode_mask(report.predictions[3].mask), mask)
    codec = LocalizationCodec()
    arrays = {**codec.arrays_of(predictions, manifest), "line": np.array([one.line for one in predictions], np.uint32)}
    assert codec.predictions_from(arrays, manifest, Limits()) == predictions
    every = fields(LocalizationPrediction)
    assert [one.name for one in every if all(getattr(p, one.name) == one.default for p in predictions)] == []


def test_too_many_problems_report_no_missing_pairs(lint):
    report = lint([_line(point=[-1, 0])] * 20, limits=Limits(problems=5))
    assert [problem.rule for problem in report.problems][-1] == "too-many-problems"
    assert len(report.problems) == 6
    assert report.missing_pairs == ()  # unread pairs are not reported as missing


@pytest.mark.parametrize("content", [b"[]", b'{"patient1_study1_view1_frontal": {}}', b"image_id,finding,cell\n"])
def test_file_without_predictions_is_always_refused(tmp_path, manifest, content):
    path = tmp_path / "empty"
    path.write_bytes(content)
    report = lint_predictions(path, manifest, LintOptions(allow_missing=True))
    assert "empty-file" in {problem.rule for problem in report.problems if problem.severity == "error"}


def test_thin_box_centred_on_the_border_is_outside(lint):
    report = lint(_line(point=..., box=[2828 - 4.6e-13, 0, 4.6e-13, 1]))
    assert [problem.rule for problem in report.problems if problem.severity == "error"] == ["outside-image"]


def test_contours_without_a_pixel_warn(lint):
    report = lint(_line(point=..., polygons=[[[2828, 5], [2828, 6], [2828, 9]]]))
    assert report.ok
    assert "empty-mask" in [problem.rule for problem in report.problems]


def test_images_of_another_version_are_skipped_and_counted(lint):
    content = [_line(), _line(image_id="gone"), _line(image_id="gone", finding="Edema")]
    report = lint(content, leave_out_unknown=True)
    assert report.ok
    assert len(report.predictions) == 1
    (warning,) = (problem for problem in report.problems if problem.rule == "left-out")
    assert warning.message == "2 predictions on images that are not in this version are left out"
    assert not lint(content).ok
