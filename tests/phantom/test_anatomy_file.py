"""The file of the phantom's anatomy: the same patients as in the pictures, by masks that were written apart."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from reveal_bench.findings import GRID_STUDY_FINDINGS
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import LocalizationPrediction
from reveal_bench.masks import decode_mask, pack_masks, rasterize_polygons
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.localization import cell_coverage
from reveal_bench.phantom import write_anatomy, write_chexlocalize
from reveal_bench.reports.anatomy import PLAUSIBLE, is_plausible, read_anatomy
from reveal_bench.reports.run_errors import categorize, shares
from reveal_bench.sources import chexlocalize

N, N_VAL, SEED, SIDE = 60, 6, 5, 256
GRID = Grid(8)


@pytest.fixture(scope="module")
def phantom(tmp_path_factory):
    """(anatomy, records) of a download without pictures, as the source reads it: the films that have findings."""
    root = tmp_path_factory.mktemp("phantom")
    options = {"n_val": N_VAL, "seed": SEED, "long_side": SIDE}
    write_chexlocalize(root / "download", n_images=N, traps=False, pixels=False, **options)
    assert write_anatomy(root / "anatomy.jsonl", N, **options) == N + N_VAL
    splits = chexlocalize.read(root / "download", pixels="withhold", keep_going=True).splits
    records = {name: list(split) for name, split in splits.items()}
    return read_anatomy(root / "anatomy.jsonl"), records


def test_ids_and_sizes_are_those_that_the_builder_gives(phantom):
    anatomy, records = phantom
    both = [record for split in ("validation", "test") for record in records[split]]
    assert len(both) > N / 2
    assert [anatomy[record.image_id].size for record in both] == [record.size for record in both]


def test_every_picture_has_a_line(tmp_path):
    write_chexlocalize(tmp_path / "download", n_images=4, n_val=2, seed=8, long_side=64, traps=False)
    write_anatomy(tmp_path / "anatomy.jsonl", 4, n_val=2, seed=8, long_side=64)
    splits = chexlocalize.read(tmp_path / "download").splits
    cases = [(record.image_id, record.size) for name in ("validation", "test") for record in splits[name]]
    assert cases == [(image_id, r.size) for image_id, r in read_anatomy(tmp_path / "anatomy.jsonl").items()]


def test_the_heart_is_the_mask_of_cardiomegaly(phantom):
    anatomy, records = phantom
    compared = 0
    for record in records["test"]:
        drawn = record.reference("Cardiomegaly")
        if drawn is not None:
            assert drawn.rle == rasterize_polygons(anatomy[record.image_id].contours["heart"], record.size)
            compared += 1
    assert compared >= 10


def test_lungs_and_mediastinum_hold_what_is_drawn_in_them(phantom):
    anatomy, records = phantom
    inside = {"Pneumothorax": "lungs", "Pleural Effusion": "lungs", "Consolidation": "lungs", "Edema": "lungs"}
    compared = Counter()
    for record in records["test"]:
        for finding, structure in inside.items():
            drawn = record.reference(finding)
            if drawn is None:
                continue
            region = decode_mask(rasterize_polygons(anatomy[record.image_id].structure(structure), record.size))
            mask = decode_mask(drawn.rle)
            assert (mask & ~region).sum() <= 0.02 * mask.sum(), (record.image_id, finding)
            compared[finding] += 1
        drawn = record.reference("Enlarged Cardiomediastinum")
        if drawn is not None:
            region = decode_mask(rasterize_polygons(anatomy[record.image_id].contours["mediastinum"], record.size))
            assert (region & ~decode_mask(drawn.rle)).sum() <= 0.01 * region.sum()
    assert min(compared[finding] for finding in inside) >= 1


def test_cells_of_the_truth_are_plausible(phantom):
    anatomy, records = phantom
    checked = []
    for record in records["test"]:
        for finding in (name for name in record.asked("present") if record.view != "LATERAL"):
            covered = cell_coverage(pack_masks([record.reference(finding).rle]), 0, GRID)
            row, column = np.unravel_index(covered.argmax(), covered.shape)
            cell = GRID.name(int(column), int(row))
            checked.append(is_plausible(cell, GRID, anatomy[record.image_id], finding))
    assert len(checked) > 100
    assert sum(checked) >= 0.99 * len(checked)  # an effusion may lie deepest behind the heart


def frontal(records):
    return [record for record in records["test"] if record.view != "LATERAL"]


def answers(records, cell_of):
    """A prediction per case from ``cell_of(record, finding)``, which gives a cell or a point."""
    predictions = []
    for record in records:
        for finding in record.asked("present"):
            named = cell_of(record, finding)
            fields = {"cell": named} if isinstance(named, str) else {"points": (named,)}
            predictions.append(LocalizationPrediction(record.image_id, finding, **fields))
    return predictions


def best_cell(record, finding):
    covered = cell_coverage(pack_masks([record.reference(finding).rle]), 0, GRID)
    row, column = np.unravel_index(covered.argmax(), covered.shape)
    return GRID.name(int(column), int(row))


def test_a_model_that_answers_the_truth_hits_fully(phantom):
    anatomy, records = phantom
    cases = categorize(answers(frontal(records), best_cell), records["test"], grid=8, anatomy=anatomy)
    assert {case.category for case in cases} == {"full_hit"}
    assert [share.estimate.value for share in shares(cases, resampling=Resampling(20))[:6]] == [1, 0, 0, 0, 0, 0]


def shoulder_cell(record, regions):
    """The cell of the right shoulder; the nearest corner where that lies outside the square."""
    x, y = np.mean(regions.contours["shoulder_right"][0], axis=0)
    return GRID.cell_at(x, y, size=record.size) or "A1"


def test_the_shoulder_is_an_anatomy_error_of_a_pneumothorax(phantom):
    """Paper 000, Figure 5b."""
    anatomy, records = phantom
    named = answers(frontal(records), lambda record, _: shoulder_cell(record, anatomy[record.image_id]))
    cases = categorize(named, records["test"], grid=8, anatomy=anatomy)
    of_air = [(case.category, case.source) for case in cases if case.finding == "Pneumothorax"]
    assert of_air
    assert set(of_air) == {("anatomy", "anatomy")}
    everywhere = [
        is_plausible(shoulder_cell(record, anatomy[record.image_id]), GRID, anatomy[record.image_id], "Pneumothorax")
        for record in frontal(records)
    ]
    assert everywhere.count(False) >= 0.95 * len(everywhere)


def test_the_mirrored_side_is_a_position_error(phantom):
    anatomy, records = phantom
    one_sided, mirrored = 0, []
    for record in frontal(records):
        for finding in ("Consolidation", "Pleural Effusion", "Pneumothorax", "Lung Lesion"):
            drawn = record.reference(finding)
            if drawn is None:
                continue
            covered = cell_coverage(pack_masks([drawn.rle]), 0, GRID)
            row, column = np.unravel_index(covered.argmax(), covered.shape)
            if covered[:, ::-1][row, column] or column in (3, 4):  # on both sides, or at the heart
                continue
            one_sided += 1
            cell = GRID.name(7 - int(column), int(row))
            cases = categorize(
                [LocalizationPrediction(record.image_id, finding, cell=cell)], [record], grid=8, anatomy=anatomy
            )
            mirrored += [case.category for case in cases if case.finding == finding]
    assert one_sided >= 8
    assert Counter(mirrored)["position"] >= 0.8 * one_sided  # patients are not quite symmetric: the heart lies left


def test_shares_of_a_guessing_model_sum_to_one(phantom):
    anatomy, records = phantom
    rng = np.random.default_rng(2)
    guess = answers(frontal(records), lambda *_: GRID.cells[rng.integers(64)])
    cases = categorize(guess, records["test"], grid=8, anatomy=anatomy)
    assert {case.source for case in cases} == {"overlap", "anatomy"}
    by_finding = {}
    for share in shares(cases, findings=GRID_STUDY_FINDINGS, resampling=Resampling(20)):
        by_finding.setdefault(share.finding, []).append(share.estimate.value)
    defined = {name: values for name, values in by_finding.items() if not np.isnan(values).any()}
    assert len(defined) >= 8
    assert [sum(values) for values in defined.values()] == pytest.approx([1.0] * len(defined))


def test_same_arguments_same_bytes_and_nothing_is_left_behind(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_anatomy(tmp_path / name, 3, n_val=None, seed=seed, long_side=256)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]
    line = json.loads(a.splitlines()[0])
    assert list(line) == ["image_id", "size", "regions"]
    assert max(line["size"]) == 256


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (0, {}, "`n_images` must be at least 1, got 0"),
        (1, {"n_val": -1}, "`n_val` must be at least 0, got -1"),
        (1, {"long_side": 32}, r"`long_side` must be in \[64, 8192\], got 32"),
    ],
)
def test_numbers_out_of_range(tmp_path, n, options, message):
    with pytest.raises(ValueError, match=message):
        write_anatomy(tmp_path / "a", n, **options)
    assert not list(tmp_path.iterdir())


def test_every_finding_of_the_paper_is_judged_on_the_phantom(phantom):
    anatomy, _ = phantom
    regions = next(iter(anatomy.values()))
    assert all(is_plausible("A1", GRID, regions, finding) is not None for finding in PLAUSIBLE)
