"""Run all speed benchmarks (``make bench``), print the ratios, and write ``benchmarks/results.json``.

``python benchmarks ragged growth`` runs only the named benchmarks and replaces their rows.
"""

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
import growth  # noqa: E402
import heat_maps  # noqa: E402
import labels  # noqa: E402
import localization  # noqa: E402
import peers  # noqa: E402
import ragged  # noqa: E402
import reading  # noqa: E402
from goals import format_row  # noqa: E402

import leaderboard  # noqa: E402

PACKAGES = (
    "reveal-bench",
    "numpy",
    "pandas",
    "pycocotools",
    "scikit-learn",
    "pydicom",
    "opencv-python-headless",
    "pillow",
    "datasets",
)


BENCHMARKS = (
    localization,
    bootstrap,
    labels,
    detection,
    heat_maps,
    command,
    ragged,
    peers,
    growth,
    dicom,
    reading,
    leaderboard,
)


def main() -> None:
    chosen = [benchmark for benchmark in BENCHMARKS if benchmark.__name__ in sys.argv[1:] or len(sys.argv) == 1]
    results = {}
    if len(chosen) < len(BENCHMARKS):
        known = json.loads((HERE / "results.json").read_text(encoding="utf-8"))["results"]
        results = {row["work"]: row for row in known}
    for benchmark in chosen:
        for row in benchmark.measure():
            print(format_row(row), flush=True)
            results[row["work"]] = row
    versions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
    document = {"results": list(results.values()), "versions": versions}
    (HERE / "results.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
