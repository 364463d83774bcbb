"""``make bench``: measure everything, print the ratios, write ``benchmarks/results.json``."""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import bootstrap  # noqa: E402
import command  # noqa: E402
import detection  # noqa: E402
import dicom  # noqa: E402
import heat_maps  # noqa: E402
import labels  # noqa: E402
import localization  # noqa: E402
import ragged  # noqa: E402
import reading  # noqa: E402

import leaderboard  # noqa: E402

PACKAGES = (
    "reveal-bench",
    "numpy",
    "numba",
    "pandas",
    "pycocotools",
    "scikit-learn",
    "pydicom",
    "opencv-python-headless",
    "pillow",
    "datasets",
)


def main() -> None:
    results = []
    for benchmark in (
        localization,
        bootstrap,
        labels,
        detection,
        heat_maps,
        command,
        ragged,
        dicom,
        reading,
        leaderboard,
    ):
        for row in benchmark.measure():
            print(ragged.shown(row), flush=True)
            results.append(row)
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    document = {"results": results, "versions": versions}
    (HERE / "results.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
