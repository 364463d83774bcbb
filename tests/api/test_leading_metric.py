"""Which hit rate leads: paper 000's for cells, the pointing game for points, in every command; each with its chance."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reveal_bench as rb
from reveal_bench.arguments import ArgumentError
from reveal_bench.exchange.facts import of_score
from reveal_bench.metrics.bootstrap import MACRO
from tests.cli.test_score import call
from tests.conftest import World

FEW = {"n_resamples": 20}
ORDER = {
    "cell": ["grid_hit", "grid_chance", "point_hit", "point_chance"],
    "point": ["point_hit", "point_chance", "grid_hit", "grid_chance"],
}


def answers(bench: rb.Bench, **answer: Any) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the same answer to every question."""
    return {i: {finding: dict(answer) for finding in row.asked} for i, row in bench.manifest.rows.items() if row.asked}


@pytest.mark.parametrize(("form", "answer"), [("cell", "D4"), ("point", [20, 20])])
def test_protocol_of_the_file_leads_in_score_compare_and_rank(world: World, form: str, answer: Any) -> None:
    bench = rb.load(world.folder)
    system = answers(bench, **{form: answer})
    scored = rb.score(system, bench, **FEW)
    assert [one.metric for one in scored.scored.estimates if one.finding == MACRO] == ORDER[form]
    assert of_score(scored.to_document(), "model").headline().metric == ORDER[form][0]
    compared = rb.compare(system, system, bench, **FEW)
    assert [one.metric for one in compared.comparisons if one.finding == MACRO] == ORDER[form][::2]
    ranked = rb.rank({"a": system, "b": system}, bench, **FEW)
    assert (ranked.metric, ranked.ranked[0].metric) == (ORDER[form][0], ORDER[form][0])
    by_view = rb.score(system, bench, by="view", **FEW).subgroups
    assert by_view is not None
    assert {one["metric"] for one in by_view.records} == {ORDER[form][0]}


def test_most_common_form_decides_and_mixed_systems_share_the_metric_of_points(world: World) -> None:
    bench = rb.load(world.folder)
    mixed = answers(bench, point=[20, 20])
    image = next(iter(mixed))
    mixed[image] = {finding: {"cell": "D4"} for finding in mixed[image]}
    assert rb.score(mixed, bench, **FEW).scored.rows.leading == "point_hit"
    cells = answers(bench, cell="D4")
    assert rb.rank({"mixed": mixed, "cells": cells}, bench, **FEW).metric == "point_hit"
    assert rb.rank({"mixed": mixed, "cells": cells}, bench, metric="grid_hit", **FEW).metric == "grid_hit"


def test_each_hit_rate_has_the_chance_of_its_own_guess(world: World) -> None:
    bench = rb.load(world.folder)
    scored = rb.score(answers(bench, cell="D4"), bench, **FEW)
    shares: dict[str, list[float]] = {}
    for record in bench.references:
        for one in record.annotations:
            if one.reader == "ground_truth":
                shares.setdefault(one.finding, []).append(one.area_px / (record.width * record.height))
    own = {one.finding: one.value for one in scored.scored.estimates if one.metric == "point_chance"}
    assert own[MACRO] == pytest.approx(np.mean([np.mean(values) for values in shares.values()]))


def test_equal_columns_are_all_printed(world: World, tmp_path: Path) -> None:
    """A cell and a point in its centre: all hit or all missed, so that both hit rates are equal."""
    lines = ["image_id,finding,cell"]
    lines += [f"{i},{finding},A1" for i, row in rb.load(world.folder).manifest.rows.items() for finding in row.asked]
    (tmp_path / "cells.csv").write_text("\n".join(lines) + "\n")
    words = ("score", tmp_path / "cells.csv", world.folder, "--resamples", 20)
    head = call(*words, "--wide").stdout.splitlines()[1]
    places = [head.index(title) for title in ("Grid hit rate", "Chance grid hit", "Hit rate", "Chance hit")]
    assert places == sorted(places)
    rows = list(csv.DictReader(call(*words, "--format", "csv").stdout.splitlines()))
    assert list(dict.fromkeys(row["metric"] for row in rows)) == ORDER["cell"]


def test_a_file_is_read_on_the_grid_that_its_submission_states(world: World, tmp_path: Path) -> None:
    """D4 of a 16 x 16 grid is in B2 of the folder's grid."""
    bench = rb.load(world.folder)
    coarse, file = answers(bench, cell="D4"), tmp_path / "cells.csv"
    file.write_text(
        "image_id,finding,cell\n" + "".join(f"{i},{finding},D4\n" for i, own in coarse.items() for finding in own)
    )
    plain = rb.score(file, bench, **FEW)
    (tmp_path / "submission.json").write_text('{"grid": 16}')
    fine = rb.score(file, bench, **FEW)
    assert fine.to_pandas().equals(rb.score(file, bench, grid=16, **FEW).to_pandas())
    assert not fine.to_pandas().equals(plain.to_pandas())
    told = "scores of cells are left out, because the grids differ: {} x {} of {}, 16 x 16 of {}"
    compared = rb.compare(coarse, file, bench, **FEW)
    assert {one.metric for one in compared.comparisons} == {"point_hit"}
    assert compared.remarks[0] == told.format(8, 8, "a", compared.b)
    ranked = rb.rank({"coarse": coarse, "fine": file}, bench, **FEW)
    assert (ranked.metric, ranked.remarks[0]) == ("point_hit", told.format(8, 8, "coarse", "fine"))
    with pytest.raises(ArgumentError, match=r"`metric` must be one that at least one file has"):
        rb.rank({"coarse": coarse, "fine": file}, bench, metric="grid_hit", **FEW)
    assert rb.lint(file, bench).ok
    for read in (rb.score, rb.lint):
        with pytest.raises(ArgumentError, match=r"`grid` must be 16, the grid of .*cells.csv, or left out, got 8"):
            read(file, bench, grid=8)
    (tmp_path / "other.csv").write_text(file.read_text())  # whose submission.json is it?
    assert rb.score(file, bench, **FEW).to_pandas().equals(plain.to_pandas())
    (tmp_path / "other.csv").unlink()
    (tmp_path / "submission.json").write_text("[" * 100_000)
    assert rb.score(file, bench, **FEW).to_pandas().equals(plain.to_pandas())
    (tmp_path / "submission.json").write_text('{"grid": 1000000}')
    with pytest.raises(ArgumentError, match=r"`grid` must be in \[1, 26\], got 1000000"):
        rb.score(file, bench, **FEW)
