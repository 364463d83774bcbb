"""The fallback rule, cells that runs repeat, and example films: counts by hand, on masks of known pixels."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reveal_bench.kinds.localization.records import LocalizationRecord
from reveal_bench.reports import style
from reveal_bench.reports.run_errors import CaseError
from reveal_bench.reports.run_localization import draw_examples
from reveal_bench.reports.run_page import write_run_report
from reveal_bench.reports.run_places import fallback_counts, repeated, top_cells_table
from tests.conftest import World, annotate


def record(i: int, finding: str, rows: slice, columns: slice) -> LocalizationRecord:
    """An image of 64 x 64 pixels, whose cells are of 8 x 8, with one rectangle."""
    mask = np.zeros((64, 64), bool)
    mask[rows, columns] = True
    return LocalizationRecord(
        f"i{i}", f"p{i}", f"s{i}", "AP", 64, 64, label_status={finding: 1}, annotations=(annotate(finding, mask),)
    )


def test_the_fallback_rule_decides_where_half_of_no_cell_is_covered() -> None:
    records = [
        record(0, "Edema", slice(0, 4), slice(0, 8)),  # 32 of 64 pixels of A1: half
        record(1, "Edema", slice(0, 4), slice(0, 7)),  # 28: less
        record(2, "Edema", slice(4, 12), slice(4, 12)),  # 16 pixels of each of four cells
        record(3, "Lung Lesion", slice(8, 16), slice(8, 16)),
    ]
    assert fallback_counts(records, ["Edema", "Lung Lesion"], 8) == {"Edema": (2, 3), "Lung Lesion": (0, 1)}
    # On 16 x 16 cells of 4 x 4 pixels each of these masks fills some
    assert fallback_counts(records, ["Edema"], 16) == {"Edema": (0, 3)}


def test_a_run_that_repeats_two_cells_is_warned_of() -> None:
    counts = {"same": Counter(D4=60, C4=35, A1=5), "other": Counter(D4=50, C4=40, A1=10), "none": Counter[str]()}
    (warning,) = repeated(counts)
    assert warning.replace("\u00a0", " ") == (
        "same gives 95.0% of its answers in D4 or C4: they hardly depend on the image"
    )
    rows = top_cells_table(counts).rows
    assert [str(cell).replace("\u00a0", " ") for cell in rows[0]] == [
        "same", "100", "3", "D4, C4, A1", "60.0%", "95.0%", "100.0%",
    ]  # fmt: skip
    assert rows[2][1:] == ("0", "0", "–", "undefined", "undefined", "undefined")


def case(i: int, finding: str, category: str) -> CaseError:
    return CaseError(f"i{i}", f"p{i}", finding, "AP", category, "B2", 0.0, "anatomy")


def test_examples_are_those_with_most_anatomy_errors_each_of_another_finding() -> None:
    output: Sequence[tuple[int, str, str, str]] = [
        (0, "Edema", "position", "position"),
        (1, "Edema", "anatomy", "anatomy"),
        (2, "Edema", "anatomy", "full_hit"),
        (3, "Lung Lesion", "full_hit", "position"),
        (4, "Lung Lesion", "full_hit", "partial_hit"),
    ]
    records = [record(i, finding, slice(0, 8), slice(0, 8)) for i, finding, *_ in output]
    cases = {label: [case(i, finding, result[k]) for i, finding, *result in output] for k, label in enumerate("ab")}
    opened: list[str] = []

    def picture(image_id: str) -> Image.Image:
        opened.append(image_id)
        return Image.new("L", (64, 64))

    drawn = draw_examples(cases, records, picture, 3, 8)
    assert drawn is not None
    assert opened == ["i1", "i3", "i2"]
    assert "Edema: a B2, anatomy error, b B2, anatomy error; Lung Lesion: a B2, full hit" in drawn.alt
    assert draw_examples({"a": [cases["a"][3]]}, records, picture, 3, 8) is None


def test_the_report_has_both_tables_and_refuses_too_many_films(
    world: World, run_paths: dict[str, Path], undrawn: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "DPI", 30)
    runs = [("one", run_paths["one"])]
    write_run_report(runs, world.folder, tmp_path / "report", n_resamples=10)
    tables = {}
    for name in ("fallback-rule", "commonest-cells"):
        with (tmp_path / "report" / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            tables[name] = list(csv.DictReader(file))
    every, *findings = tables["fallback-rule"]
    assert every["finding"] == "all"
    assert int(every["questions"]) == sum(int(row["questions"]) for row in findings) > 0
    assert {row["k"] for row in tables["commonest-cells"]} == {"1", "2", "5"}
    with pytest.raises(ValueError, match="`examples` must be from 0 to 12, got 13"):
        write_run_report(runs, world.folder, tmp_path / "report", examples=13)
    with pytest.raises(ValueError, match="has no pictures"):
        write_run_report(runs, world.folder, tmp_path / "report", n_resamples=10, examples=1)
