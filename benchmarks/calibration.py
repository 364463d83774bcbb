"""Simulate how often intervals, p values, verdicts and tiers err: the tables of docs/statistics.md and calibration.md.

A cell is one simulated setting: a world (`calibration_worlds.py` or `second_world.py`), a number of patients, a metric
and one of these tasks:

* ``score``: intervals of one system, as printed by `reveal-bench score`;
* ``compare``: intervals and p of the difference between two systems;
* ``margin``: how often the first system is called non-inferior at a margin that equals its true loss;
* ``tiers``: how often `rank` finds any two of ``--systems`` systems significantly different.

The true value of a macro is the mean of the true values of the findings that are defined in the trial. Without
``--save`` the rates are only printed:

    python benchmarks/calibration.py --world reveal-good --patients 100 --metric auroc,f1 --trials 400
    python benchmarks/calibration.py --world reveal-excellent --patients 100 --task tiers --systems 10 --metric f1
    python benchmarks/calibration.py --plan --save new --trials 3000
    python benchmarks/calibration.py --draw-only

``--save LABEL`` merges the cells into calibration.json under that label, each with its number of trials and seed.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from calibration_rates import TASKS, Cell, measure  # noqa: E402 - in this folder
from calibration_worlds import WORLDS, AnyWorld  # noqa: E402
from second_world import SECOND_WORLDS  # noqa: E402

RESULTS = HERE / "calibration.json"
LABELS, PLACES = ("f1", "cohen_kappa", "recall", "precision"), ("point_hit", "mask_iou")
SHARES = ("specificity", "npv")
RANKINGS = ("auroc", "average_precision")
_SECOND = ("ordinary", "good", "excellent", "chance", "clusters", "uneven", "six", "rare")
_REVEAL = ("poor", "good", "very-good", "excellent", "unequal", "ties", "clusters", "chance")

Row = tuple[str, tuple[int, ...], str, tuple[str, ...], int]
PLAN: tuple[Row, ...] = (
    *(
        (f"reveal-{skill}", (50, 100, 200, 300), "score", (*LABELS, *SHARES, *RANKINGS, *PLACES), 1)
        for skill in _REVEAL
    ),
    *((f"six-{skill}", (25, 40, 60), "score", (*LABELS, *SHARES, *RANKINGS), 1) for skill in ("good", "excellent")),
    *(
        (world, (30, 50, 100, 300), "score", (*LABELS, *SHARES, *PLACES), 1)
        for world in ("plain", "clustered", "alike")
    ),
    ("imbalanced", (30, 50, 100, 300), "score", (*LABELS, *SHARES, *PLACES), 1),
    *(
        (f"reveal-{skill}", (50, 100, 300), "compare", (*LABELS, *RANKINGS, *PLACES), 2)
        for skill in ("poor", "good", "excellent", "worse")
    ),
    ("reveal-worse", (50, 100, 300), "margin", ("f1", "cohen_kappa", "recall", *RANKINGS, "point_hit"), 2),
    ("six-worse", (25, 40, 60), "margin", ("f1", "cohen_kappa", "recall"), 2),
    *(
        (f"reveal-{skill}", (100, 200), "tiers", ("f1", "cohen_kappa", "auroc", "point_hit", "mask_iou"), n)
        for skill in ("good", "excellent")
        for n in (2, 10)
    ),
    ("reveal-excellent", (100,), "tiers", ("f1", "cohen_kappa"), 5),
    ("reveal-excellent", (100,), "tiers", ("f1", "cohen_kappa"), 20),
    ("reveal-worse", (100,), "tiers", ("f1", "cohen_kappa"), 5),
    ("spread", (30,), "tiers", ("mask_iou",), 10),
    *((f"second-{name}", (50, 100, 200), "score", (*LABELS, *SHARES, *RANKINGS, *PLACES), 1) for name in _SECOND),
    *((f"second-{name}", (50, 100, 200), "compare", (*LABELS, *RANKINGS, *PLACES), 2) for name in _SECOND),
    ("second-worse", (50, 100, 200), "margin", (*LABELS, *RANKINGS, *PLACES), 2),
    *(
        (f"second-{name}", (100,), "tiers", ("f1", "cohen_kappa", "auroc", "point_hit", "mask_iou"), 10)
        for name in ("good", "excellent")
    ),
)
"""World, numbers of patients, task, metrics and numbers of systems that ``--plan`` simulates."""


def run(cells: list[Cell], world: AnyWorld, options: argparse.Namespace) -> None:
    """Simulate cells that share trials, print the rates, and save them with ``--save``."""
    start = time.process_time()
    first = cells[0]
    rows = measure(cells, world, options.trials, options.seed, options.resamples)
    seconds = round(time.process_time() - start, 1)
    print(first.world, first.n_patients, first.task, f"{first.n_systems} systems", seconds, "s", flush=True)
    for row in rows:
        if not options.quiet:
            rates = " ".join(f"{name} {value:.3f}" for name, value in row.items() if isinstance(value, float))
            print(f"  {row['metric']:18} {row['figure']:8} {rates}", flush=True)
    if options.save:
        head = {"world": first.world, "n_patients": first.n_patients, "task": first.task}
        head |= {"n_systems": first.n_systems, "label": options.save, "n_trials": options.trials, "seed": options.seed}
        save(head | {"metric": cell.metric, "rows": _of_metric(rows, cell.metric)} for cell in cells)


def _of_metric(rows: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    return [{name: x for name, x in row.items() if name != "metric"} for row in rows if row["metric"] == metric]


def save(cells: Iterable[dict[str, Any]]) -> None:
    """Merge cells into calibration.json under a lock, because several processes may write at once."""
    with RESULTS.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        kept = {_key(cell): cell for cell in (json.loads(text)["cells"] if text else [])}
        kept |= {_key(cell): cell for cell in cells}
        lines = ",\n".join(json.dumps(kept[key]) for key in sorted(kept))
        file.truncate(0)
        file.write(f'{{"cells": [\n{lines}\n]}}\n')


def _key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(cell[name] for name in ("task", "world", "n_systems", "n_patients", "metric", "label"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", default="", help="names, separated by commas")
    parser.add_argument("--patients", default="", help="numbers, separated by commas")
    parser.add_argument("--task", choices=TASKS)
    parser.add_argument("--metric", default="f1", help="names, separated by commas")
    parser.add_argument("--systems", type=int, default=2, help="number of systems in tiers")
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--interval", default="jackknife")
    parser.add_argument("--save", metavar="LABEL", default="", help="merge the rates into calibration.json")
    parser.add_argument("--quiet", action="store_true", help="only print the time of each cell")
    parser.add_argument(
        "--plan", action="store_true", help="simulate all planned cells, or those of --world and --task"
    )
    parser.add_argument("--draw-only", action="store_true", help="write pages and picture from calibration.json")
    return parser.parse_args()


def _asked(options: argparse.Namespace) -> list[Row]:
    """Return the rows of the plan to simulate, selected by options, or one row made of the options."""
    worlds, sizes = options.world.split(",") if options.world else [], options.patients
    sizes = tuple(map(int, sizes.split(","))) if sizes else ()
    if options.plan:
        kept = [row for row in PLAN if row[0] in (worlds or [row[0]]) and row[2] == (options.task or row[2])]
        return [(world, tuple(n for n in of if n in (sizes or of)), *rest) for world, of, *rest in kept]
    task = options.task or "score"
    n_systems = {"score": 1, "tiers": options.systems}.get(task, 2)
    metrics = tuple(options.metric.split(","))
    return [(world, sizes or (100,), task, metrics, n_systems) for world in worlds or ["reveal-good"]]


def main() -> None:
    options = _options()
    if options.draw_only:
        from calibration_page import write_pages  # in this folder

        write_pages(json.loads(RESULTS.read_text(encoding="utf-8"))["cells"])
        return
    worlds: dict[str, AnyWorld] = {world.name: world for world in (*WORLDS, *SECOND_WORLDS)}
    for name, sizes, task, metrics, n_systems in _asked(options):
        for n_patients in sizes:
            cells = [Cell(name, n_patients, task, metric, options.interval, n_systems) for metric in metrics]
            run(cells, worlds[name], options)


if __name__ == "__main__":
    main()
