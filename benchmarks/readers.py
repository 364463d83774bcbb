"""Find which libraries and versions read dataset folders, and whether all read the same values.

    python benchmarks/readers.py [--folders DIR] [--venvs DIR] [--only WORD]

The script builds a folder of every source and kind from phantom downloads (or uses those in `--folders`), and a virtual
environment for each library (kept in `--venvs`). Each library reads every column of every table and decodes every
image. A library reads a folder correctly if the values have the same hash as with the newest pyarrow. The script prints
a Markdown table, and exits with code 1 if a library fails.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
COMMAND = Path(sys.executable).with_name("reveal-bench")
READ = HERE / "read_folders.py"


@dataclass(frozen=True)
class Reader:
    """Packages of a virtual environment, and the ways of reading to test (see `read_folders.py`)."""

    packages: str
    ways: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.packages.split()[0].replace("==", " ")


DATASETS = ("plain", "stream", "parquet", "columns")
READERS = (
    Reader("pyarrow==26.0.*", ("pyarrow",)),  # the first reader is the reference for all others
    Reader("pyarrow==25.0.*", ("pyarrow",)),
    Reader("pyarrow==22.0.*", ("pyarrow",)),
    Reader("pyarrow==20.0.*", ("pyarrow",)),
    Reader("pyarrow==18.1.* numpy<2.3", ("pyarrow",)),
    Reader("pyarrow==16.1.* numpy<2", ("pyarrow",)),
    Reader("pyarrow==14.0.* numpy<2", ("pyarrow",)),
    Reader("datasets==5.2.* pyarrow==26.0.*", DATASETS),
    Reader("datasets==4.0.* pyarrow==18.1.* numpy<2.3", DATASETS),
    Reader("datasets==3.6.* pyarrow==16.1.* numpy<2", DATASETS),
    Reader("datasets==2.21.* pyarrow==15.0.* numpy<2", DATASETS),
    Reader("polars", ("polars",)),
    Reader("duckdb", ("duckdb",)),
    Reader("pandas pyarrow==26.0.*", ("pandas",)),
    Reader("pandas<2.2 pyarrow==14.0.* numpy<2", ("pandas",)),
)
STYLES = {
    "chexlocalize": ("--images 80 --long-side 200 --val-images 20 --anatomy organs.jsonl", ""),
    "reveal-cxr": ("--images 110 --long-side 160", "--source reveal-cxr --id-key key"),
    "rexecution": ("--images 40 --long-side 160", ""),
    "midrc": ("--images 12", "--source midrc --id-key key"),
    "chestx-det": ("--images 6", ""),
    "nih-boxes": ("--images 6", ""),
    "ms-cxr": ("--images 12 --long-side 160", "--pictures download/pictures"),
    "vindr-cxr": ("--images 12 --long-side 160", "--keep-going"),
    "vinbigdata": ("--images 12 --long-side 160", "--keep-going --holdout-split train"),
    "rsna-pneumonia": ("--images 6", ""),
    "siim-acr": ("--images 6", ""),
    "padchest-gr": ("--images 20 --long-side 160", ""),
}
"""Style of `reveal-bench phantom` -> (options of `phantom`, options of `build`)."""
DETECTION = ("chestx-det", "vindr-cxr")
"""Styles that are also built as detection benchmarks."""
OWN_FINDINGS = """\
table: labels.csv
study_key: {column: study, matches: file}
patient_key: {column: patient}
pictures: true
findings: [Rib fracture, Pneumothorax, {name: No finding, stands_alone: true}]
labels:
  wide: {fracture: Rib fracture, ptx: Pneumothorax, normal: No finding}
"""
OWN_BOXES = """\
boxes: boxes.csv
image: {column: image, matches: file}
xywh: [x, y, w, h]
coordinates: pixels
images: all pictures
finding: {column: finding}
findings: [Nodule, Effusion]
"""


def run(command: str, folder: Path, program: Path = COMMAND) -> None:
    done = subprocess.run(shlex.split(f"{program} {command}"), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}{done.stderr}")


def build_folders(root: Path) -> None:
    """Build a folder of every source and kind, in folders of `root`."""
    jobs = [(style, *options) for style, options in STYLES.items()]
    jobs.append(("chexpert-labels", "--images 12", ""))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: build_phantom(root, *job), jobs))
    for name, mapping in (("own-findings", OWN_FINDINGS), ("own-boxes", OWN_BOXES)):
        build_own(root / name, mapping)


def build_phantom(root: Path, style: str, phantom: str, build: str) -> None:
    folder = root / style
    folder.mkdir(parents=True, exist_ok=True)
    run(f"phantom download --style {style} --seed 3 {phantom}", folder)
    build_download(folder, style, build)


def build_download(folder: Path, style: str, build: str, program: Path = COMMAND, out: str = ".") -> None:
    """Build the download in `folder` into its subfolder `out`."""
    run(f"build download --out {out}/data --holdout {out}/private --seed 7 {build}", folder, program)
    if style in DETECTION:
        # The style is also the benchmark's name
        options = f"{build.replace('--holdout-split train', '')} --accept-overlap {style}"
        run(f"build download --task detection --out {out}/detection {options}", folder, program)


def build_own(folder: Path, mapping: str) -> None:
    """Write twelve grey images with tables of labels and boxes, and build dataset folders of them."""
    download = folder / "download"
    download.mkdir(parents=True)
    grey = np.random.default_rng(0).integers(0, 255, (12, 48, 64), np.uint8)
    labels, boxes = [["study", "patient", "fracture", "ptx", "normal"]], [["image", "finding", "x", "y", "w", "h"]]
    for number, pixels in enumerate(grey):
        Image.fromarray(pixels).save(download / f"image{number}.png")
        labels.append([f"image{number}", f"P{number}", number % 2, number % 3 // 2, int(number % 6 in (0, 4))])
        if number % 3:
            boxes.append([f"image{number}.png", ("Nodule", "Effusion")[number % 2], 4, 5, 10 + number, 9])
    for name, rows in (("labels.csv", labels), ("boxes.csv", boxes)):
        if name in mapping:
            with (download / name).open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(rows)
    (download / "mapping.yaml").write_text(mapping, encoding="utf-8")
    run("build download --id-key key --out data --holdout private --seed 7", folder)


def dataset_folders(root: Path) -> list[Path]:
    return sorted(path.parents[1] for path in root.rglob("manifest/benchmark.json"))


def environment(venvs: Path, reader: Reader) -> Path:
    """Return the Python of a virtual environment with a reader's packages and Pillow; create it if missing."""
    folder = venvs / reader.packages.replace(" ", "_").replace("*", "x").replace("<", "lt").replace("=", "")
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pillow"]
        subprocess.run([*install, *reader.packages.split()], check=True)
        (folder / "ready").touch()
    return python


def read(python: Path, way: str, folders: list[Path]) -> Iterator[dict[str, str]]:
    """Yield a reader's version, then {"folder", "digest"} or {"folder", "error"} per folder."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [str(python), str(READ), way, *map(str, folders)],
            env={"PATH": "/usr/bin:/bin", "HF_HOME": cache, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        yield {"folder": "", "error": done.stderr.strip().splitlines()[-1] if done.stderr else "no output"}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def table(root: Path, venvs: Path, only: str) -> int:
    """Print the table; return 1 if a library failed on a folder."""
    folders = dataset_folders(root)
    expected: dict[str, str] = {}
    n_failed = 0
    print(f"{len(folders)} folders: {', '.join(str(path.relative_to(root)) for path in folders)}\n")
    print("| reader | versions | way | folders read whole | what failed |\n|---|---|---|---|---|")
    for reader in READERS:
        if only not in reader.packages and reader is not READERS[0]:
            continue
        python = environment(venvs, reader)
        for way in reader.ways:
            versions, failed, n_read = "", [], 0
            for answer in read(python, way, folders):
                if "versions" in answer:
                    versions = answer["versions"]
                elif "error" in answer:
                    failed.append(f"{answer['folder']}: {answer['error'][:90]}")
                elif expected.setdefault(answer["folder"], answer["digest"]) != answer["digest"]:
                    failed.append(f"{answer['folder']}: other values")
                else:
                    n_read += 1
            n_failed += n_read != len(folders)
            words = "; ".join(failed[:2]) + (f" and {len(failed) - 2} more" if len(failed) > 2 else "")
            print(f"| {reader.name} | {versions} | {way} | {n_read} of {len(folders)} | {words} |", flush=True)
    return int(n_failed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description="Find which libraries read dataset folders.")
    parser.add_argument("--folders", type=Path, help="folder that contains dataset folders at any depth")
    parser.add_argument(
        "--venvs", type=Path, default=HERE.parent / ".venv-readers", help="folder of the virtual environments"
    )
    parser.add_argument(
        "--only", default="", help="only the first reader, and readers whose package names contain this text"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = (args.folders or Path(folder)).resolve()
        if not dataset_folders(root):
            build_folders(root)
        return table(root, args.venvs.resolve(), args.only)


if __name__ == "__main__":
    sys.exit(main())
