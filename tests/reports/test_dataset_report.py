"""The report: one page that needs nothing else, with the right numbers, and never inside the dataset."""

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.drawings import PALETTE, FindingDrawing
from reveal_bench.dataset.tables import open_folder
from reveal_bench.masks import decode_mask, encode_mask
from reveal_bench.reports import dataset as page
from reveal_bench.reports.dataset import (
    Proportion,
    co_occurrence,
    draw_shares,
    from_markdown,
    render_report,
    write_report,
)
from reveal_bench.reports.films import ExampleSampler, drawings_of, render_image
from reveal_bench.reports.page import Lines, PageTable, Text
from reveal_bench.reports.style import NARROW, WIDE
from tests.dataset.card_folders import (
    FINDINGS,
    LABELS,
    edit,
    findings_folder,
    localization_folder,
    png,
    rows_of,
    study,
    tasks_folder,
)
from tests.reports.html_page import HtmlPage

MAKERS = {"localization": localization_folder, "multilabel": findings_folder, "tasks": tasks_folder}


@pytest.mark.parametrize(("n", "of"), [(0, 1), (1, 1), (0, 7), (3, 7), (187, 668), (668, 668), (1, 13735)])
def test_wilson_intervals_are_those_of_scipy(n, of):
    from scipy.stats import binomtest

    expected = binomtest(n, of).proportion_ci(0.95, method="wilson")
    assert Proportion("a", n, of).interval == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_the_share_of_nothing():
    assert np.isnan(Proportion("a", 0, 0).interval).all()
    assert Proportion("a", 0, 0).text == "0 of 0"


@pytest.mark.parametrize("config", MAKERS)
@pytest.mark.parametrize("pixels", ["embed", "withhold"])
def test_the_page_needs_nothing_else_and_is_whole(tmp_path, config, pixels):
    folder = MAKERS[config](tmp_path, pixels=pixels)
    text = render_report(folder)
    page = HtmlPage(text)
    assert all(source.startswith(("data:image/", "#")) for source in page.sources)
    assert not re.search(r"(?<!w3\.org/)https?://(?!www\.w3\.org)|@import|url\((?!#)", text)
    assert str(tmp_path) not in text
    assert all("alt" in image and image["width"] for image in page.all("img"))
    assert ("pixels withheld" in text) == (pixels == "withhold")


def test_numbers_of_a_findings_folder(tmp_path):
    text = render_report(findings_folder(tmp_path))
    output = re.sub("<[^>]*>", "", text)
    assert "6 studies" in output
    assert "9 images" in output
    # Mass in studies 0 and 3 of 6; Wilson's interval of 2 of 6 is 9.7 to 70.0%
    assert "Mass 2 of 6, 33.3% (9.7 to 70.0)" in text
    assert "33.3%" in HtmlPage(text).cells
    # Edema with Mass: both of the 2, and 2 of the 6
    assert 'title="2 of 2 with Mass also have Edema"' in text
    assert 'title="2 of 6 with Edema also have Mass"' in text
    for name in ("Agreement", "Views", "Acquisition", "Demographics", "Carestream", "91 kV", "60-69"):
        assert name in text


def test_every_finding_has_an_example_with_all_its_pictures(tmp_path):
    folder = findings_folder(tmp_path)
    text = render_report(folder)
    # study 0 shows Edema and Mass; nothing new comes after it
    assert text.count("<article") == 1
    assert "Example of Edema, Mass" in text
    assert text.count("radiograph") == 1
    edit(folder, "multilabel/test", lambda row: row.update(labels=[2]) if row["study_id"] == "study-5" else None)
    page = HtmlPage(render_report(folder))
    assert [image["alt"] for image in page.all("img")] == ["AP radiograph", "AP radiograph", "LATERAL radiograph"]


def test_tasks_are_shown_with_prompt_answer_and_prior(tmp_path):
    text = render_report(tasks_folder(tmp_path, n=6))
    # two of each of the two categories that there are
    assert text.count("<article") == 4
    for line in ("Is there a mass? (0)", "A round opacity of 1 cm", "earlier · image-101", "cough", "laterality: left",
                 "24 ratings by 2 readers", "1 opacity: reference box"):  # fmt: skip
        assert line in text


def test_a_split_can_be_picked(tmp_path):
    folder = localization_folder(tmp_path, holdout=True)
    assert "released, 3 images" in render_report(folder, split="released")
    with pytest.raises(ValueError, match=r"must be one with references in .* \(released\), got 'holdout'"):
        render_report(folder, split="holdout")


def test_text_of_the_data_is_no_markup(tmp_path):
    folder = tasks_folder(tmp_path, n=2)
    evil = '<script>alert("x")</script>'
    edit(folder, "tasks/test", lambda row: row.update(prompt=evil, indication=evil, task_id=row["task_id"] + "<b>"))
    text = render_report(folder)
    assert "<script" not in text
    assert "<b>" not in text
    HtmlPage(text)  # is well formed


def test_it_is_never_written_into_the_dataset(tmp_path):
    folder = findings_folder(tmp_path, n=2)
    for out in (folder / "report.html", folder / "multilabel" / "x.html"):
        with pytest.raises(ValueError, match="must not be in the dataset folder"):
            write_report(folder, out)
    with pytest.raises(ValueError, match="must be a file, got the folder"):
        write_report(folder, tmp_path)
    output = []
    warnings = write_report(folder, tmp_path / "r.html", progress=lambda *counts: output.append(counts))
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert output == [("test", 2, 2)]
    assert len(warnings) == 1
    assert "terms forbid redistribution" in warnings[0]


def test_the_page_says_what_it_is(tmp_path):
    assert write_report(findings_folder(tmp_path / "a", n=2, synthetic=True), tmp_path / "a.html") == []
    text = (tmp_path / "a.html").read_text()
    assert "Synthetic: every image" in text
    assert "pass this page on" not in text
    findings_folder(tmp_path / "b", holdout=True)
    warnings = write_report(tmp_path / "b" / "private", tmp_path / "b.html")
    assert "private holdout: only the dataset's maintainer may see the page" in warnings[0]
    assert "pixels withheld" in (tmp_path / "b.html").read_text()


def layer_of(film):
    data = base64.b64decode(film.layer.split(",")[1])
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGBA"))


def test_a_mask_is_drawn_where_it_is(tmp_path, benchmark):
    (row,) = rows_of(localization_folder(tmp_path, n=1), "localization/")
    (truth, reader) = drawings_of(row, benchmark.findings)
    assert (truth.finding, truth.number, truth.is_reference, truth.what) == ("Edema", 1, True, "mask")
    assert (reader.reader, reader.is_reference, reader.what) == ("benchmark readers", False, "point")
    layer = layer_of(render_image(None, 300, 200, [scaled(truth, 10)]))
    assert layer.shape == (200, 300, 4)
    colour = [int(PALETTE[0][i : i + 2], 16) for i in (1, 3, 5)]
    # rows 5 to 8, columns 2 to 4, ten times larger: the line at the border, the filling inside, nothing outside
    assert layer[50, 25].tolist() == [*colour, 255]
    assert 0 < layer[55, 24, 3] < 255
    assert layer[49, 25, 3] == layer[55, 19, 3] == layer[90, 30, 3] == 0


def scaled(drawing, times):
    masks = [np.kron(decode_mask(rle), np.ones((times, times), bool)) for rle in drawing.rles]
    return replace(drawing, rles=[encode_mask(mask) for mask in masks])


def test_a_large_picture_is_made_smaller_with_its_drawings():
    values = np.zeros((1000, 2000), np.uint8)
    values[400:600, 800:1200] = 200
    box = FindingDrawing(1, "Edema", "reference", True, boxes=[(800.0, 400.0, 400.0, 200.0)])
    film = render_image(png(values), 2000, 1000, [box])
    assert (film.width, film.height) == (640, 320)
    assert film.picture.startswith("data:image/jpeg;base64,")
    layer = layer_of(film)
    edges = np.argwhere(layer[160, :, 3] == 255).ravel()
    # 800 to 1200 of 2000 are 256 to 384 of 640
    assert abs(edges.min() - 256) <= 3
    assert abs(edges.max() - 384) <= 3


def test_a_lesion_of_one_pixel_stays_visible():
    mask = np.zeros((2000, 2000), bool)
    mask[1000, 1000] = True
    layer = layer_of(
        render_image(None, 2000, 2000, [FindingDrawing(1, "Nodule", "ground truth", True, rles=[encode_mask(mask)])])
    )
    assert layer[..., 3].max() == 255


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_shares_are_drawn_and_said(width):
    drawn = draw_shares([Proportion("A & B", 1, 4), Proportion("C", 0, 0)], "x", 4, "images")
    assert drawn.alt == "Proportion of images of split x. A & B 1 of 4, 25.0% (4.6 to 69.9); C 0 of 0"
    axes = drawn.draw(width).axes[0]
    assert [bar.get_width() for container in axes.containers for bar in container] == [25]  # no bar for zero images
    assert [text.get_text() for text in axes.texts] == ["1 · 25.0%", "0"]
    assert axes.get_xlabel() == "proportion of images (%)"


def test_no_co_occurrence_of_fewer_than_two():
    assert co_occurrence(LABELS, {0: 3}, {}) == {}
    assert co_occurrence(LABELS, {}, {}) == {}
    result = co_occurrence(LABELS, {0: 3, 2: 1}, {(0, 2): 1})
    assert result["names"] == [LABELS[0], LABELS[2]]
    assert [[cell[:2] for cell in cells] for _, cells in result["rows"]] == [
        [("3", None), ("1", "33")],
        [("1", "100"), ("1", None)],
    ]


def test_columns_of_co_occurrence_are_named_by_findings(tmp_path):
    assert HtmlPage(render_report(findings_folder(tmp_path))).cells.count("Mass") >= 2


def test_markdown_of_the_card():
    table, text, lines = from_markdown(
        "| a | b |\n| --- | --- |\n| `x` | A\\|B |\n| y | 1,234 |\n\nSome `code` & text.\n\n* one\n* two"
    )
    assert (table.head, table.rows) == (["a", "b"], [["x", "A|B"], ["y", "1,234"]])
    assert isinstance(table, PageTable)
    assert text == Text("Some code & text.")
    assert lines == Lines(["one", "two"])


def test_examples_are_read_group_by_group(tmp_path):
    folder = open_folder(localization_folder(tmp_path, n=3))
    chosen = ExampleSampler(folder)
    for row in rows_of(folder.path, "localization/"):
        chosen.offer(row)
    assert chosen.keys == {"img0": ["Edema"]}


def test_a_finding_that_was_not_labelled_counts_as_not_present(tmp_path):
    folder = localization_folder(tmp_path, n=4)
    edit(folder, "localization/test", lambda row: row["label_status"].update(Cardiomegaly=None))
    text = render_report(folder)
    assert "Cardiomegaly 0 of 4, 0.0% (0.0 to 49.0)" in text
    assert "A finding that was not labelled, or is uncertain, counts as absent here." in text


def test_of_a_long_vocabulary_only_what_occurs_is_drawn(tmp_path):
    wide = replace(FINDINGS, findings=(*LABELS, *(f"Rare {i}" for i in range(30))))
    build_folder({"test": [study(tmp_path / "p", 0)]}, tmp_path / "folder", wide)
    text = render_report(tmp_path / "folder")
    assert 'Proportion of studies of split test. Edema 1 of 1, 100.0% (20.7 to 100.0)"' in text
    assert "Omitted because no row has them: Mass, Nodule, Rare 0," in text


def test_one_is_no_plural():
    words = [page._noun(name, 1) for name in ("images", "studies", "tasks", "patients", "questions")]
    assert words == ["image", "study", "task", "patient", "question"]
    assert page._noun("studies", 2) == "studies"


def test_images_are_counted_by_finding_and_view(tmp_path):
    page = render_report(localization_folder(tmp_path, n=6))
    assert "Images of split test with each finding, by view." in page
    assert "; Edema 6 AP;" in page
