"""Goals of the speed benchmarks, and the printed line of a result, which marks missed goals."""

from __future__ import annotations

from collections.abc import Mapping

GOALS: dict[str, dict[str, float]] = {
    "IoU from run-length strings": {"ratio": 300},
    "point in mask": {"ratio": 300},
    "grid hit, exact coverage": {"ratio": 250},
    "1,000 replicates, hits, against the published pandas loop": {"ratio": 100},
    "1,000 replicates, five metrics, one draw, against the published pandas loop": {"ratio": 100},
    "10,000 replicates, hits, against the published pandas loop": {"ratio": 100},
    "10,000 replicates, hits, BCa, against the published pandas loop": {"ratio": 100},
    "F1 and kappa intervals of 12 labels": {"ratio": 300},
    "IoU of ragged masks": {"ratio": 300},
    "detection: 17 figures, 1,000 replicates, against one run of COCO's": {"ours_s": 3},
    "whole score command, ragged masks": {"ratio": 45, "ours_s": 0.6, "peak_mib": 200},
    "DICOM (native) to PNG, against decode + cv2 PNG alone": {"ratio": 0.67},
    "DICOM to PNG, two processes against one": {"ratio": 1.8},
    "reading 200 MB of images back with load_dataset": {"ratio": 0.83},
    "upload to score on a board, against the score command": {"ratio": 0.33},
    "whole lint command, 10,000 images": {"ours_s": 0.4},
    "reveal_bench --help": {"ours_s": 0.15},
    "reveal_leaderboard admin --help": {"ours_s": 0.5},
    "whole score command, 100,000 images": {"peak_mib": 1024},
}
"""Benchmark -> minimum `ratio`, or maximum seconds (`ours_s`) and memory (`peak_mib`)."""


def format_row(row: Mapping[str, float | str]) -> str:
    """Return a result as one line of text."""
    figures = []
    if "ratio" in row:
        figures.append(f"{row['ratio']:>7} x as fast as its peer")
    if "ours_s" in row:
        figures.append(f"{row['ours_s']:.3f} s")
    if "peak_mib" in row:
        figures.append(f"at most {row['peak_mib']} MiB")
    missed = [
        f"{name} {goal:g}"
        for name, goal in GOALS.get(str(row["work"]), {}).items()
        if (float(row[name]) < goal if name == "ratio" else float(row[name]) > goal)
    ]
    return f"  {row['work']:<62} {', '.join(figures)}" + (f"  MISSES ITS GOAL: {', '.join(missed)}" if missed else "")
