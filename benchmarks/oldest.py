"""Compare dataset folders built with the oldest allowed libraries and with the installed ones.

    python benchmarks/oldest.py PYTHON [STYLE ...]

PYTHON belongs to another environment, such as the one made by `make test-oldest`. Both environments build the same
phantom downloads, of every style or of the named styles. Two tables are the same if their schemas and rows are equal,
including the bytes of images; only versions in `pixel_pipeline` may differ. Parquet writers of different versions write
different bytes, so sizes and hashes of tables differ in the card, in `croissant.json` and in `CHECKSUMS.json`. The
script prints a Markdown table, and exits with code 1 if anything else differs.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from readers import COMMAND, STYLES, build_download, build_phantom, dataset_folders

VERSION = re.compile(r"\d+\.\d+\.\d+")
SIZES_AND_HASHES = re.compile(r"\b[0-9a-f]{64}\b|(?<=num_bytes: )\d+|(?<=_size: )\d+|\b\d+(?= B\b)")
FIELDS = ("same bytes", "same values", "same except for sizes and hashes of tables", "different")


def without_versions(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: VERSION.sub("", inner) if name == "pixel_pipeline" and inner else without_versions(inner)
            for name, inner in value.items()
        }
    return [without_versions(inner) for inner in value] if isinstance(value, list) else value


def is_same_table(path: Path, other: Path) -> bool:
    tables = [pq.read_table(file) for file in (path, other)]
    rows, other_rows = (without_versions(table.to_pylist()) for table in tables)
    return tables[0].schema.equals(tables[1].schema, check_metadata=True) and rows == other_rows


def compare(path: Path, other: Path) -> str:
    """Return the name in `FIELDS` that describes how two files compare."""
    if not path.exists() or not other.exists():
        return FIELDS[3]
    if path.read_bytes() == other.read_bytes():
        return FIELDS[0]
    if path.suffix == ".parquet":
        return FIELDS[1] if is_same_table(path, other) else FIELDS[3]
    texts = {SIZES_AND_HASHES.sub("", file.read_text(encoding="utf-8")) for file in (path, other)}
    return FIELDS[2] if len(texts) == 1 else FIELDS[3]


def compare_folders(folder: Path, other: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, name in `FIELDS`) for every file of two dataset folders."""
    both = (folder, other)
    names = {path.relative_to(root).as_posix() for root in both for path in root.rglob("*") if path.is_file()}
    for name in sorted(names):
        yield name, compare(folder / name, other / name)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Check that other versions of libraries build the same dataset folders."
    )
    parser.add_argument("python", type=Path, help="Python of the other environment")
    parser.add_argument("styles", nargs="*", help="styles of `reveal-bench phantom`; by default all")
    args = parser.parse_args()
    program = args.python.absolute().with_name(COMMAND.name)
    different = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)

        def build(style: str) -> None:
            build_phantom(root, style, *STYLES[style])
            build_download(root / style, style, STYLES[style][1], program, "other")

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(build, args.styles or STYLES))
        print(f"| folder | {' | '.join(FIELDS)} |\n|{'---|' * (len(FIELDS) + 1)}")
        for folder in dataset_folders(root):
            if folder.parent.name == "other":
                continue
            differences = list(compare_folders(folder, folder.parent / "other" / folder.name))
            counts = [sum(kind == field for _, kind in differences) for field in FIELDS]
            print(f"| {folder.relative_to(root)} | {' | '.join(map(str, counts))} |")
            different += [folder.relative_to(root) / file for file, kind in differences if kind == FIELDS[3]]
    print(*(f"different: {path}" for path in different), sep="\n")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
