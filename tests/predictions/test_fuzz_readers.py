"""The linter returns a printable report for any prediction file; valid predictions are read as written.

Properties of every parser on random input: no exception, only listed rules, short printable texts, and predictions
only from files without errors.
"""

from __future__ import annotations

import json
import string
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.findings.lint import findings_to_jsonl, lint_findings
from reveal_bench.kinds.findings.records import FindingsPrediction, StudyManifest
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.lint import lint_predictions
from reveal_bench.kinds.localization.records import ImageManifest, LocalizationPrediction, ManifestRow
from reveal_bench.predictions import RULES, LintReport
from reveal_bench.predictions.limits import LintOptions
from tests.predictions.conftest import parquet

HEIGHT, WIDTH = 48, 64
IMAGES = tuple(f"p{i:03}" for i in range(8))
ROWS = {name: ManifestRow(name, name, "AP", WIDTH, HEIGHT, CHEXLOCALIZE_FINDINGS[:3]) for name in IMAGES}
MANIFEST = ImageManifest("chexlocalize", "1.0", "test", 8, CHEXLOCALIZE_FINDINGS, ROWS)
LABELS = ("Edema", "COPD", "Fracture")
STUDIES = StudyManifest("reveal-cxr", "1.0", "test", LABELS, tuple(f"s{i}" for i in range(8)))

FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-")
QUICK = settings(suppress_health_check=list(HealthCheck))
LONGEST = 500

ids = st.sampled_from([*IMAGES, "P000", "p00", "", "../p000", "p000\x00", "=p000", "\u202ep000", "s1"])
names = st.sampled_from([*CHEXLOCALIZE_FINDINGS, "edema", "Edem", "lung opacity", "", "<b>Edema</b>", "x" * 101])
numbers = st.one_of(
    st.integers(-5, 100),
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 1),
    st.sampled_from([10**400, -(10**400), 2**64, -0.0, 1e308, True, None, "1", "١٢", "1_0"]),
)
runs = st.text(st.sampled_from([chr(c) for c in range(48, 112)]), max_size=30) | st.text(max_size=8)
texts = st.text(max_size=20) | st.sampled_from(["\ud800", "A1", "Z9", "<script>", "=1+1", "\x1b[2J", "p000"])
anything = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
pairs = st.lists(numbers, max_size=3)
rles = st.fixed_dictionaries({}, optional={"size": st.just([HEIGHT, WIDTH]) | pairs, "counts": runs | anything})
fields = st.fixed_dictionaries(
    {},
    optional={
        "image_id": ids | anything,
        "finding": names | anything,
        "point": pairs | anything,
        "points": st.lists(pairs, max_size=3) | anything,
        "cell": st.sampled_from(["A1", "H8", "I9", "a1", "1A"]) | anything,
        "box": st.lists(numbers, max_size=5) | anything,
        "rle": rles | anything,
        "polygons": st.lists(st.lists(pairs, max_size=5), max_size=3) | anything,
        "score": numbers | anything,
        "more": anything,
    },
)


def lint(data: bytes, manifest: ImageManifest | StudyManifest = MANIFEST, **options: Any) -> LintReport:
    """Return the report after checking the properties of every report."""
    path = Path(FOLDER.name) / "file"
    path.write_bytes(data)
    read: Callable[..., LintReport] = lint_findings if isinstance(manifest, StudyManifest) else lint_predictions
    report = read(path, manifest, LintOptions(allow_missing=True, **options))
    assert report.ok or not report.predictions
    assert report.render().replace("\n", "").isprintable()
    assert json.loads(report.to_json())["problems"] == [asdict(problem) for problem in report.problems]
    for problem in report.problems:
        assert problem.rule in RULES
        assert 0 < len(problem.message) <= LONGEST
        assert max(len(problem.field), len(problem.value), len(problem.hint)) <= LONGEST
    return report


def dumped(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


@QUICK
@given(st.lists(fields | anything, max_size=6))
def test_lines(lines: list[Any]) -> None:
    lint(b"\n".join(map(dumped, lines)))
    lint(b"\n".join(json.dumps(line).encode() for line in lines))


@QUICK
@given(st.dictionaries(ids | texts, st.dictionaries(names | st.just("img_size"), rles | pairs | anything) | anything))
def test_chexlocalize_documents(document: Any) -> None:
    lint(dumped(document))
    lint(json.dumps(document).encode())


coco = st.fixed_dictionaries(
    {},
    optional={
        "image_id": ids | anything,
        "category_id": st.integers(-1, 12) | names | anything,
        "category": names,
        "bbox": st.lists(numbers, max_size=5),
        "segmentation": rles | st.lists(st.lists(numbers, max_size=9), max_size=3) | anything,
        "score": numbers,
        "id": anything,
    },
)


@QUICK
@given(st.lists(coco | anything, max_size=6))
def test_coco_documents(document: list[Any]) -> None:
    lint(dumped(document))
    lint(json.dumps(document).encode())


columns = st.sampled_from(
    ["image_id", "finding", "x", "y", "width", "height", "cell", "size_h", "size_w", "counts", "score", "", "Finding"]
)
cells = ids | names | texts | runs | numbers.map(str)
separators = st.sampled_from([",", "\t"])


@QUICK
@given(
    separators, st.lists(columns, min_size=1, max_size=8), st.lists(st.lists(cells, max_size=8), max_size=5), st.data()
)
def test_tables_of_text(separator: str, head: list[str], rows: list[list[str]], data: st.DataObject) -> None:
    quoted = data.draw(st.booleans())
    lines = [[f'"{cell}"' if quoted else cell for cell in row] for row in rows]
    if data.draw(st.booleans()):
        lines = [row[: len(head)] + [""] * (len(head) - len(row)) for row in lines]
    text = "\n".join(separator.join(row) for row in [head, *lines])
    lint(text.encode("utf-8", "surrogatepass"))
    lint(text.encode("utf-8", "surrogatepass").replace(b"image_id", b"study_id"), STUDIES)


arrays = st.one_of(
    st.lists(st.none() | ids, min_size=3, max_size=3).map(pa.array),
    st.lists(st.none() | ids, min_size=3, max_size=3).map(lambda v: pa.array(v, pa.string()).dictionary_encode()),
    st.lists(st.none() | st.floats(), min_size=3, max_size=3).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=3, max_size=3).map(
        lambda v: pa.array(v, pa.int64())
    ),
    st.just(pa.nulls(3)),
    st.just(pa.array([b"\xff", b"p000", None])),
    st.just(pa.array([[1], [], None])),
    st.just(pa.array([{"a": 1}, None, {"a": None}])),
    st.just(pa.array([True, False, None])),
    st.just(pa.array([1, 2, 3], pa.timestamp("ns"))),
    st.just(pa.array([1, 2, 3], pa.decimal128(30, 2))),
    st.just(pa.array([1.5, 2, None], pa.float16())),
    st.just(pa.array(["p000", "p001", None], pa.large_string())),
)


@QUICK
@given(st.dictionaries(columns, arrays, min_size=1, max_size=6), st.booleans())
def test_parquet_of_every_type(table: dict[str, pa.Array], stores_schema: bool) -> None:
    lint(parquet(pa.table(table), store_schema=stores_schema))


marks = st.sampled_from(
    [
        b"",
        b"PAR1",
        b"\x1f\x8b\x08\x00",
        b"\x28\xb5\x2f\xfd",
        b"\xef\xbb\xbf",
        b"{",
        b"[",
        b'{"',
        b"PK\x03\x04",
        b"\x80\x04",
    ]
)


@QUICK
@given(marks, st.binary(max_size=200) | st.text(string.printable, max_size=200).map(str.encode))
def test_bytes(mark: bytes, rest: bytes) -> None:
    lint(mark + rest)
    lint(mark + rest, STUDIES)


studies = st.fixed_dictionaries(
    {},
    optional={
        "study_id": st.sampled_from(["s0", "s1", "S0", "", "s9"]) | anything,
        "labels": st.lists(st.sampled_from([*LABELS, "edema", "Normal"]), max_size=4) | anything,
        "probabilities": st.dictionaries(st.sampled_from([*LABELS, "copd"]), numbers) | anything,
        "more": anything,
    },
)


@QUICK
@given(st.lists(studies | anything, max_size=5))
def test_lines_of_findings(lines: list[Any]) -> None:
    lint(b"\n".join(map(dumped, lines)), STUDIES)
    lint(b"\n".join(json.dumps(line).encode() for line in lines), STUDIES)


# --- valid predictions are read as written

inside_x, inside_y = st.floats(0, WIDTH, exclude_max=True), st.floats(0, HEIGHT, exclude_max=True)
shares = st.floats(0, 1)


def _box(corner: tuple[float, float], far: tuple[float, float]) -> tuple[float, float, float, float] | None:
    x, y, width, height = corner[0], corner[1], far[0] - corner[0], far[1] - corner[1]
    fits = width > 0 and height > 0 and x + width <= WIDTH and y + height <= HEIGHT
    return (x, y, width, height) if fits else None


@st.composite
def predictions(draw: st.DrawFn) -> list[LocalizationPrediction]:
    asked = draw(st.lists(st.sampled_from(MANIFEST.asked_pairs()), min_size=1, max_size=6, unique=True))
    made = []
    for line, (image_id, finding) in enumerate(asked, start=1):
        point = draw(st.tuples(inside_x, inside_y))
        box = _box(draw(st.tuples(inside_x, inside_y)), draw(st.tuples(inside_x, inside_y)))
        cell = draw(st.none() | st.sampled_from(["A1", "H8", "D4"]))
        score = draw(st.none() | shares)
        made.append(LocalizationPrediction(image_id, finding, (point,), cell, box, None, score, line))
    return made


@QUICK
@given(predictions())
def test_localization_predictions_are_read_as_written(sent: list[LocalizationPrediction]) -> None:
    report = lint(predictions_to_jsonl(sent).encode())
    assert report.ok, report.render()
    assert list(report.predictions) == sent


answers = st.lists(st.sampled_from(LABELS), unique=True).map(tuple)
probabilities = st.fixed_dictionaries(dict.fromkeys(LABELS, shares))


@QUICK
@given(st.lists(st.sampled_from(STUDIES.studies), unique=True, min_size=1), st.booleans(), st.data())
def test_findings_predictions_are_read_as_written(asked: list[str], gives_labels: bool, data: st.DataObject) -> None:
    sent = [
        FindingsPrediction(study, data.draw(answers), None, line)
        if gives_labels
        else FindingsPrediction(study, None, data.draw(probabilities), line)
        for line, study in enumerate(asked, start=1)
    ]
    report = lint(findings_to_jsonl(sent).encode(), STUDIES)
    assert report.ok, report.render()
    assert list(report.predictions) == sent
