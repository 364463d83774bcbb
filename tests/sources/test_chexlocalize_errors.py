"""CheXlocalize: errors, their messages, and that all errors are raised together."""

import pytest
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.build import BuildLog, build_folder
from reveal_bench.sources import chexlocalize
from reveal_bench.sources.source import BuildError
from tests.dataset.conftest import change, load

MASKS, TRUTH = "gt_segmentations_test", "gt_annotations_test"
READERS, POINTS = "hb_annotations_test", "hb_salient_pt_test"


def refused(root, match, **options):
    with pytest.raises(BuildError, match=match) as caught:
        read_all(root, **options)
    return caught.value.problems


def read_all(root, **options):
    for records in chexlocalize.read(root, **options).splits.values():
        list(records)


def pictures_of(root):
    return sorted((root / "CheXpert" / "test").rglob("view*.jpg"))


def test_small_pictures_are_refused(copy):
    path = pictures_of(copy)[0]
    with Image.open(path) as image:
        width, height = image.size
        small = image.resize((width // 2, height // 2))
    small.save(path)
    problems = refused(copy, r"pixels like its masks")
    assert [(p.field, p.value) for p in problems] == [("size", f"{width // 2} x {height // 2}")]


def test_unreadable_pictures_are_listed_together(copy, tmp_path):
    """The header can be valid and the pixels damaged: only the folder writer, which decodes, finds out."""
    pictures = pictures_of(copy)[:3]
    for path in pictures[:2]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    source_data = chexlocalize.read(copy)
    with pytest.raises(BuildError, match="2 problems") as caught:
        build_folder(source_data.splits, tmp_path / "out", BENCHMARKS["chexlocalize"])
    assert {p.row for p in caught.value.problems} == {_id(path) for path in pictures[:2]}
    log = BuildLog()
    info = build_folder(
        source_data.splits, tmp_path / "out", BENCHMARKS["chexlocalize"], keep_going=True, log=log, overwrite=True
    )
    assert info.splits["test"]["n_images"] == 22
    assert len(log.left_out) == 2
    pictures[2].write_bytes(b"no picture")
    assert [p.value for p in refused(copy, "1 problem")] == ["not a picture"]
    assert [str(p) for p in chexlocalize.inspect(copy).problems] == [
        f"CheXpert/test/{'/'.join(pictures[2].parts[-3:])}:{_id(pictures[2])}: `picture` must be readable, "
        "got not a picture"
    ]
    source_data = chexlocalize.read(copy, keep_going=True)
    assert len(source_data.splits["test"]) == 23
    assert sum("left out" in warning for warning in source_data.warnings) == 1


def test_a_missing_picture_matters_only_when_embedded(copy):
    masks, readers = load(copy, "gt_segmentations_test"), load(copy, "hb_annotations_test")
    known = next(p for p in pictures_of(copy) if _id(p) in masks)
    known.unlink()
    refused(copy, r"`picture` must be in CheXpert/test when pixels are embedded, got none")
    records = {r.image_id: r for r in chexlocalize.read(copy, pixels="withhold").splits["test"]}
    assert list(records[_id(known)].size) == masks[_id(known)]["Edema"]["size"]
    unknown = next(p for p in pictures_of(copy) if _id(p) not in {*masks, *readers})
    unknown.unlink()
    (problem,) = refused(copy, "`size` must be known from a picture or an annotation", pixels="withhold")
    assert problem.row == _id(unknown)


def _id(path):
    return "_".join([*path.parts[-3:-1], path.stem])


def first(content):
    return content[next(iter(content))]


def edema(content):
    return first(content)["Edema"]


def renamed(content):
    entry = first(content)
    entry["Edemma"] = entry.pop(next(name for name in entry if name != "img_size"))


@pytest.mark.parametrize(
    ("file", "edit", "message"),
    [
        (MASKS, lambda c: edema(c).update(counts="~"), "must be a well-formed mask, got `counts` may only contain"),
        (MASKS, lambda c: edema(c).update(counts="5"), "must be a well-formed mask, got `counts` must sum"),
        (MASKS, lambda c: edema(c).update(size=[3]), r'must be \{"size": \[h, w\], "counts": "..."\}'),
        (MASKS, lambda c: edema(c).update(size=[8, 9]), "must be the same for all masks of an image"),
        (MASKS, renamed, r"must be one of the 10 findings, got 'Edemma' \(nearest: 'Edema'\)"),
        (MASKS, lambda c: c.update(patient9_study1=first(c)), "must look like patient1_study1_view1_frontal"),
        (READERS, lambda c: first(c).update(img_size=[9, 9]), r"`size` must be \[\d+, \d+\] \(\[h, w\]\) as in"),
        (TRUTH, lambda c: first(c).pop("img_size"), r"`img_size` must be \[h, w\], got none"),
        (TRUTH, lambda c: first(c).update(Edema=[[[1, 2]]]), "must be contours of at least 2 finite vertices"),
        (TRUTH, lambda c: first(c).update(Edema=[[[1, "2"], [3, 4]]]), "must be contours of at least 2 finite"),
        (POINTS, lambda c: first(c).update(Edema=[5]), r"must be points \[x, y\]"),
        (POINTS, lambda c: c.update(a=1), "must look like patient1"),
    ],
)
def test_broken_annotation_files(copy, file, edit, message):
    change(copy, file, edit)
    problems = refused(copy, message)
    assert {problem.file for problem in problems} <= {f"{file}.json", "gt_annotations_test.json"}


def test_points_outside_the_picture_are_left_out_with_a_warning(copy):
    """A click on the edge is not an error: the image stays, and so do its points inside."""
    before = {record.image_id: record for record in chexlocalize.read(copy).splits["test"]}
    image_id = next(iter(load(copy, POINTS)))
    width, height = before[image_id].width, before[image_id].height
    edge = [[width, 3], [3, 2], [width - 0.5, height - 0.5], [-0.25, 3], [5, 9999]]
    change(copy, POINTS, lambda c: c[image_id].update(Edema=edge))
    source_data = chexlocalize.read(copy)
    records = {record.image_id: record for record in source_data.splits["test"]}
    points = [(p.x, p.y) for p in records[image_id].points if p.finding == "Edema"]
    assert points == [(3, 2), (width - 0.5, height - 0.5)]
    size = f"in {width} x {height}"
    assert (
        f"{POINTS}.json: 3 points on or beyond the edge of the picture left out; the image is kept: "
        f"Edema of {image_id} ({width}, 3) {size}; Edema of {image_id} (-0.25, 3) {size}; "
        f"Edema of {image_id} (5, 9999) {size}"
    ) in source_data.warnings
    del before[image_id], records[image_id]
    assert records == before


def test_an_unknown_image_id_gets_a_hint(copy):
    known = next(iter(load(copy, "gt_segmentations_test")))
    patient, rest = known.split("_", 1)
    change(copy, "gt_segmentations_test", lambda c: c.update({f"{patient}9_{rest}": c.pop(known)}))
    (problem,) = refused(copy, "must be in the label file")
    assert problem.value.startswith(f"'{patient}9_{rest}' (nearest: '{patient[:-1]}")


def test_repeated_json_keys_are_errors(copy):
    path = copy / "CheXlocalize" / "hb_salient_pt_test.json"
    path.write_text('{"patient64741_study1_view1_frontal": {}, "patient64741_study1_view1_frontal": {}}')
    refused(copy, "`key` must not be repeated")
    path.write_text("[1")
    refused(copy, "must be a JSON object in UTF-8")


def edited_labels(root, edit):
    path = root / "CheXpert" / "test_labels.csv"
    path.write_text(edit(path.read_text()))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.replace("Lung Opacity", "Opacity"), "test_labels.csv:1: `Airspace Opacity` must be a column"),
        (
            lambda t: t.replace("Pneumonia", "edema"),
            ":1: `columns` must have different names, got Edema, edema more than once",
        ),
        (lambda t: t.replace("Path", "File"), "test_labels.csv:1: `Path` must be a column"),
        (lambda t: t + t.split("\n")[1] + "\n", r":26: `Path` must be unique, got patient\w+, also line 2"),
        (lambda t: t.replace("view1_frontal.jpg", "view1.jpg", 1), r"test_labels.csv:2: `Path` must end in patient"),
        (lambda t: t.replace("0.0", "maybe", 3), r"must be 1, 0, -1 or blank, got 'maybe'"),
        (lambda t: t.replace(",0.0\n", "\n", 1), r"test_labels.csv:\d+: `row` must have 15 cells, like the header"),
        (lambda t: t.replace(",0.0\n", ",0.0,0.0\n", 1), r"test_labels.csv:\d+: `row` must have 15 cells"),
        (lambda t: t + '"', "test_labels.csv:26: `file` must be readable as csv in UTF-8, got unexpected end of data"),
    ],
)
def test_broken_label_files(copy, edit, message):
    edited_labels(copy, edit)
    refused(copy, message)
