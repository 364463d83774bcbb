"""The report's step, its page for the maintainers and its figures, against numbers known by hand."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from reveal_bench.curation.folder import CurationFolder
from reveal_bench.curation.refresh import refresh
from reveal_bench.curation.sample import sample
from reveal_bench.curation.tables import Placed, Selected, read_table
from reveal_bench.reports.curation import report
from reveal_bench.reports.curation_agreement import landis_koch
from reveal_bench.reports.curation_data import read_curated
from reveal_bench.reports.curation_halves import largest_difference
from reveal_bench.reports.curation_steps import BEFORE_REFRESH, Stage, draw_flow, find_stages, unbalanced
from reveal_bench.reports.page import Csv, Note, Page, Section, Text, render_page
from reveal_bench.reports.rubric import agreement_table, compare_readers
from reveal_bench.reports.style import NARROW, WIDE, number, share
from reveal_bench.sources.source import BuildError
from tests.curation.made_folder import done
from tests.reports import report_folder as made
from tests.reports.report_folder import FORMULA, LONG, SCRIPT, write_csv
from tests.reports.test_figures import check_texts


def page_of(folder: CurationFolder, name: str = "index.html") -> str:
    return folder.path(f"report/{name}").read_text(encoding="utf-8")


def rows_of(folder: CurationFolder, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(page_of(folder, name))))


def section_of(page: str, key: str) -> str:
    result = re.search(rf'<section id="{key}".*?</section>', page, re.DOTALL)
    assert result is not None
    return result.group()


# Whole -------------------------------------------------------------------------------------------------------------


def test_flow_has_the_numbers_that_are_known(curated: CurationFolder) -> None:
    stages = find_stages({step: read_curated(curated).counts(step) for step in BEFORE_REFRESH})
    assert [stage.n for stage in stages] == [87, 87, 60, 60, 45, 30]
    assert [dict(stage.leaving) for stage in stages[1:5]] == [
        {
            "with another number of labels than was sampled": 3,
            "set aside: no usable film": 0,
            "set aside: another study of the same patient": 4,
            "candidates, not drawn": 20,
        },
        {},
        {
            "without three votes": 0,
            "labels confirmed by too few readers": 15,
            "without a label in the majority list": 0,
        },
        {"with a less common finding, randomly omitted": 0, "others with fewer findings": 15},
    ]
    assert stages[2].lines == ("1 label: 20 of 20", "2 labels: 40 of 50, 10 short", "short of the requested number: 10")
    assert "3 readers agree to all: 45" in stages[3].lines
    assert "1 reader agrees to all: 15" in stages[3].lines
    assert stages[5].halves == (("Released", 15), ("Holdout", 15))
    assert unbalanced(stages) == []


def test_kappa_is_that_of_the_votes(curated: CurationFolder) -> None:
    # 135 votes agree with a majority that agrees, 30 do not with one that does not, 15 agree alone:
    # observed 165/180, expected (150 * 135 + 30 * 45) / 180**2 = 2/3, kappa 0.75
    assert "is 0.750 (" in section_of(page_of(curated), "agreement")
    assert "substantial agreement" in section_of(page_of(curated), "agreement")


def test_agreement_tables(curated: CurationFolder) -> None:
    labels = rows_of(curated, "agreement_labels.csv")
    assert [row["label"] for row in labels[:4]] == ["all", "Airspace opacity", "Pleural effusion", "COPD"]
    assert [float(row["positive_ratio"]) for row in labels[1:4]] == pytest.approx([30 / 45, 30 / 45, 15 / 45])
    readers = rows_of(curated, "agreement_readers.csv")
    assert [int(row["studies"]) for row in readers] == [60, 60, 60]
    assert sum(float(row["agree_all"]) for row in readers) == pytest.approx((60 + 45 + 45) / 60)


def test_halves(curated: CurationFolder) -> None:
    prevalence = {
        row["label"]: int(row["released"]) + int(row["holdout"]) for row in rows_of(curated, "prevalence.csv")
    }
    assert {label: n for label, n in prevalence.items() if n} == {
        "Airspace opacity": 15,
        "Pleural effusion": 15,
        "COPD": 15,
    }
    per_study = {row["findings"]: int(row["released"]) + int(row["holdout"]) for row in rows_of(
        curated, "findings_per_study.csv")}  # fmt: skip
    assert per_study == {"1": 15, "2": 15}
    sex = [row for row in rows_of(curated, "demographics.csv") if row["characteristic"] == "sex"]
    assert [row["category"] for row in sex] == ["F", "M"]
    assert sum(int(row["total"]) for row in sex) == 30
    draws = rows_of(curated, "draws.csv")
    assert [row["taken"] for row in draws].count("True") == 1
    assert min(float(row["largest_difference"]) for row in draws) == pytest.approx(
        next(float(row["largest_difference"]) for row in draws if row["taken"] == "True")
    )


def test_every_part_of_the_paper_is_named(curated: CurationFolder) -> None:
    page = page_of(curated)
    for named in ("Figure 1", "Figures 3 and 4", "Table 1", "Table S2", "Tables S3 and S4"):
        assert named in page


# Bytes -------------------------------------------------------------------------------------------------------------


def test_same_curation_same_bytes_and_no_place(curated: CurationFolder, tmp_path: Path) -> None:
    again = made.whole(tmp_path / "again")
    outputs = report(again).outputs
    assert outputs == curated.record("report").outputs  # type: ignore[union-attr]
    for name in outputs:
        assert str(tmp_path) not in again.path(name).read_text(encoding="utf-8")


def test_page_needs_nothing_else(curated: CurationFolder) -> None:
    for name in ("index.html", "public.html"):
        page = page_of(curated, name)
        assert "<script" not in page
        assert not re.search(r"(src|href)=\"(?!#)", page)
        assert "http" not in re.sub(r"http://www.w3.org/(2000/svg|1999/xlink)|http-equiv", "", page)


def test_drawings_are_xml_with_a_title(curated: CurationFolder) -> None:
    drawings = [name for name in curated.record("report").outputs if name.endswith(".svg")]  # type: ignore[union-attr]
    assert len(drawings) == 7
    for name in drawings:
        root = ElementTree.fromstring(curated.path(name).read_text(encoding="utf-8"))
        assert root.findtext("{http://www.w3.org/2000/svg}title")


def test_ids_are_there_once(curated: CurationFolder) -> None:
    ids = re.findall(r'\sid="([^"]+)"', page_of(curated))
    assert len(ids) == len(set(ids)) > 20
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page_of(curated))) <= {(i, "") for i in ids} | {
        ("", i) for i in ids
    }


# Hostile text ------------------------------------------------------------------------------------------------------


def test_hostile_names_are_text(curated: CurationFolder) -> None:
    page = page_of(curated)
    assert "<b>films" not in page
    assert "&lt;b&gt;films&lt;/b&gt;" in page
    assert "&lt;script&gt;alert(&#39;me &amp; you&#39;)" in page
    assert "<script" not in page
    assert "&lt;i&gt;Röntgen&lt;/i&gt;" in page
    assert LONG in page


def test_formulas_are_no_formulas_in_a_spreadsheet(curated: CurationFolder) -> None:
    readers = {row["reader"] for row in rows_of(curated, "agreement_readers.csv")}
    assert readers == {SCRIPT, "'" + FORMULA, LONG}
    assert Csv.of("t", ("a", "b"), (("-1", -1),)).text == "a,b\n'-1,-1\n"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\x00b", "a\ufffdb"),
        ("\u202egnp", "\ufffdgnp"),
        ("\ud800", "\ufffd"),
        ("\"'<>&", "&#34;&#39;&lt;&gt;&amp;"),
        ("{{ 7 * 7 }}", "{{ 7 * 7 }}"),
    ],
    ids=["nul", "direction", "surrogate", "markup", "template"],
)
def test_text_is_no_markup(value: str, expected: str) -> None:
    text = render_page(Page(value, "", [Section("one", "One", [Text(value)])], [Note(value)]))
    assert text.count(expected) == 4  # title, heading, note, paragraph


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_text_of_the_flow_is_cut_or_lies_on_another(curated: CurationFolder, width: float) -> None:
    stages = find_stages({step: read_curated(curated).counts(step) for step in BEFORE_REFRESH})
    check_texts(draw_flow(stages).draw(width))
    check_texts(draw_flow(find_stages({})).draw(width))


# Not everything is done ------------------------------------------------------------------------------------------


def test_nothing_done(tmp_path: Path) -> None:
    folder = CurationFolder.create(tmp_path / "empty", name="Empty")
    assert report(folder).counts["done"] == []
    page = page_of(folder)
    assert "The step “consensus” is not done yet." in section_of(page, "agreement")
    assert "The step “split” is not done yet." in section_of(page, "findings")
    assert "No numbers yet for: extract, sample, assign, import-votes, consensus, select, split." in page
    assert "not done" in page_of(folder, "flow.svg")


@pytest.mark.usefixtures("undrawn")
def test_report_grows_and_shrinks_with_the_steps(tmp_path: Path) -> None:
    folder = made.begin(tmp_path)
    assert report(folder).is_new
    assert not report(folder).is_new
    assert "Studies with reports: 87" in page_of(folder, "flow.svg")
    assert not folder.path("report/agreement_labels.svg").exists()
    made.read(folder)
    assert report(folder).is_new
    assert folder.path("report/agreement_labels.svg").exists()
    sample(folder, strata={1: 5}, redo=True)
    assert report(folder).counts["done"] == ["extract", "sample"]
    assert not folder.path("report/agreement_labels.svg").exists()
    assert "The step “consensus” is stale" in section_of(page_of(folder), "agreement")


@pytest.mark.usefixtures("undrawn")
def test_changed_output_is_not_reported(tmp_path: Path) -> None:
    folder = made.begin(tmp_path)
    made.read(folder)
    folder.path("agreement.json").write_text("{}", encoding="utf-8")
    report(folder)
    visible = section_of(page_of(folder), "agreement")
    assert "“consensus” is damaged (agreement.json was changed after it was written)" in visible


@pytest.mark.usefixtures("undrawn")
def test_no_facts(tmp_path: Path) -> None:
    folder = made.begin(tmp_path)
    made.read(folder)
    made.finish(folder, with_facts=False)
    report(folder)
    assert "No facts about the patients." in section_of(page_of(folder), "demographics")
    assert "No acquisition data." in section_of(page_of(folder), "balance")
    assert "Pneumothorax" in section_of(page_of(folder), "balance")  # balance of the labels is there


def test_undefined_kappas_are_called_so(tmp_path: Path) -> None:
    folder = made.begin(tmp_path)
    made.read(folder, all_agree=True)
    report(folder)
    visible = section_of(page_of(folder), "agreement")
    assert "is undefined because the answers do not vary" in visible
    row = next(row for row in rows_of(folder, "agreement_labels.csv") if row["label"] == "Pneumothorax")
    assert (row["kappa"], float(row["positive_ratio"])) == ("", 0.0)
    assert "undefined" in page_of(folder, "agreement_labels.svg")
    assert "nan" not in page_of(folder, "agreement_labels.svg").lower().replace("finance", "")


@pytest.mark.usefixtures("undrawn")
def test_after_a_refresh(curated: CurationFolder, tmp_path: Path) -> None:
    placed = read_table(curated.path("split.parquet"), Placed)
    one = next(study for study in placed if study.half == "holdout")
    rows = [(one.study_id, "Pneumothorax", SCRIPT)]
    corrections = write_csv(tmp_path / "corrections.csv", ("study", "labels", "why"), rows)
    folder = CurationFolder.create(tmp_path / "next", name="Next")
    refresh(folder, curated, corrections=corrections)
    report(folder)
    page = page_of(folder)
    visible = section_of(page, "refresh")
    assert "Version 1.1.0 follows 1.0.0." in visible
    assert one.study_id in visible
    assert "&lt;script&gt;" in visible
    assert rows_of(folder, "changes.csv")[0] == {"what": "Labels corrected", "released": "0", "holdout": "1"}
    holdout = {row["label"]: row["holdout"] for row in rows_of(folder, "prevalence.csv")}
    assert holdout["Pneumothorax"] == "1"
    assert "This is a refresh of version 1.0.0." in section_of(page, "flow")
    assert "Studies of the previous version keep their halves" in section_of(page, "balance")
    assert "additions" not in section_of(page, "balance")
    assert one.study_id not in page_of(folder, "public.html")


def added(root: Path, n: int) -> CurationFolder:
    """A selection of `n` studies of as many patients."""
    folder = CurationFolder.create(root, name="More")
    for step in ("extract", "sample", "assign", "import-votes", "consensus"):
        folder.run(step, {}, lambda scratch: {}, writes=())
    rows = [Selected(f"new-{i}", f"new-patient-{i}", ("COPD",), 3, "less_common") for i in range(n)]
    done(folder, "select", "selection.parquet", rows, Selected)
    return folder


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("n", "retires", "sentence"),
    [
        (5, False, r"The 5 added studies were divided by one random draw \((2|3) released, (2|3) holdout\)\."
                   " Neither the added studies nor the present halves were tested"),
        (1, False, "The additions, 1 study of one patient, went to the holdout. The present halves"),
        (5, True, "The holdout is the 5 studies that this version adds, .* were neither balanced nor tested"),
    ],
    ids=["halved", "one", "retired"],
)  # fmt: skip
def test_added_studies_are_not_said_to_be_balanced(
    curated: CurationFolder, tmp_path: Path, n: int, retires: bool, sentence: str
) -> None:
    folder = CurationFolder.create(tmp_path / "next", name="Next")
    refresh(folder, curated, additions=added(tmp_path / "more", n), retire_holdout=retires)
    report(folder)
    visible = section_of(page_of(folder), "balance")
    assert re.search(sentence, visible)
    assert "Not tested in this version" in section_of(page_of(folder), "demographics")


# Pieces --------------------------------------------------------------------------------------------------------------


def test_what_does_not_add_up_is_said() -> None:
    stages = [Stage("Sent", 10, leaving=(("lost", 3),)), Stage("Read", 8), Stage("Kept", None, halves=())]
    assert unbalanced(stages) == ["Sent to Read"]
    assert unbalanced([Stage("Kept", 5, halves=(("Released", 2), ("Holdout", 2)))]) == ["Kept to its halves"]


@pytest.mark.parametrize(
    ("kappa", "word"),
    [(-0.01, "poor"), (0.0, "slight"), (0.2, "slight"), (0.21, "fair"), (0.41, "moderate"), (0.59, "moderate"),
     (0.622, "substantial"), (0.81, "almost perfect"), (1.0, "almost perfect")],
)  # fmt: skip
def test_landis_koch(kappa: float, word: str) -> None:
    """0.590 and 0.622 are paper 004's."""
    assert landis_koch(kappa) == word


def test_infinite_difference_is_found_where_the_file_has_none() -> None:
    apart = [{"category": "A", "released": 4, "holdout": 0}, {"category": "B", "released": 0, "holdout": 4}]
    assert largest_difference({"largest_difference": None, "categories": apart}) == float("inf")
    assert largest_difference({"largest_difference": None, "categories": []}) is None
    assert largest_difference({"largest_difference": 0.25, "categories": apart}) == 0.25


def test_numbers_as_printed() -> None:
    assert [number(-0.0004), number(-0.25, 2), number(None)] == ["0.000", "−0.25", "undefined"]
    assert [share(1, 200), share(0, 200), share(3, 0)] == ["1 (<\u00a01%)", "0 (0%)", "3"]


# Rubric --------------------------------------------------------------------------------------------------------------


def test_rubric_table_by_hand() -> None:
    nan = float("nan")
    both = np.array([[[score] * 6 for score in (1, 1, 2, 2, 5)], [[score] * 6 for score in (1, 2, 2, 2, nan)]])
    row = compare_readers("a", "b", both)[0]
    # squared differences: mean 1/4; over all pairs of the two readers' scores (6 + 2) / 16
    assert row["cohen_kappa_quadratic"] == pytest.approx(1 - 0.25 / 0.5)
    assert row["mean_absolute_difference"] == pytest.approx(0.25)
    assert (row["mean_a"], row["sd_a"]) == pytest.approx((1.5, (4 * 0.25 / 3) ** 0.5))
    assert (row["mean_b"], row["sd_b"], row["n"]) == pytest.approx((1.75, 0.5, 4))


def test_rubric_of_one_score_throughout_is_undefined() -> None:
    row, empty = (compare_readers("a", "b", np.array(both))[0] for both in ([[[3] * 6] * 2] * 2, [[[np.nan] * 6]] * 2))
    (cells, no_cells) = agreement_table("rubric", [row, empty], "").rows
    assert cells[3:5] == ("undefined", "0.000")
    assert no_cells[2:] == ("0", "undefined", "undefined", "undefined", *["undefined ± undefined"] * 2)


@pytest.mark.usefixtures("undrawn")
def test_ratings_in_the_folder_are_reported(tmp_path: Path) -> None:
    folder = CurationFolder.create(tmp_path / "rated", name="Rated")
    head = ("task_id", "model", "reader", "process", "execution", "synthesis", "language", "image_content",
            "image_style")  # fmt: skip
    rows = [(f"t{i}", "m", reader, *([score] * 6)) for reader, scores in (
        ("<i>A</i>", (1, 1, 2, 2, 5)), ("B", (1, 2, 2, 2))) for i, score in enumerate(scores)]  # fmt: skip
    write_csv(folder.path("ratings.csv"), head, rows)
    report(folder)
    assert [row["kappa"] for row in rows_of(folder, "rubric.csv")] == ["0.5"] * 6
    assert "&lt;i&gt;A&lt;/i&gt; and B" in page_of(folder)
    write_csv(folder.path("ratings.csv"), head, [("t0", "m", "A", 9, 1, 1, 1, 1, 1)])
    with pytest.raises(BuildError, match="process"):
        report(folder)
