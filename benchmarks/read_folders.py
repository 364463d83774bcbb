"""Read whole dataset folders with one library, and print a hash of each folder's values, for `readers.py`.

    python read_folders.py pyarrow|polars|duckdb|pandas|plain|stream|parquet|columns FOLDER ...

This script runs in environments with old libraries and without `reveal_bench`, so it only imports the library to test,
and Pillow.
"""

import contextlib
import glob
import hashlib
import io
import json
import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version

SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}\.parquet")


def plain(value):
    """Return a value for JSON: arrays and tuples become lists, images the hash of their bytes."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return None if value != value else value
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, dict):
        if set(value) == {"bytes", "path"}:
            decode(value["bytes"])
            return plain(value["bytes"])
        return {name: plain(inner) for name, inner in value.items()}
    if hasattr(value, "tolist"):  # of numpy
        return plain(value.tolist())
    return [plain(inner) for inner in value]


def decode(data):
    """Decode a whole image."""
    if data is not None:
        from PIL import Image

        with Image.open(io.BytesIO(data)) as image:
            image.load()


def tables(folder):
    """Return {(config, split): files} of every table, including the manifest, which the card does not list."""
    paths_by_table = {}
    for path in sorted(glob.glob(os.path.join(folder, "*", "*.parquet"))):
        config, name = path.split(os.sep)[-2:]
        match = SHARD.fullmatch(name)
        paths_by_table.setdefault((config, match.group(1) if match else name[:-8]), []).append(path)
    return paths_by_table


def read_pyarrow(folder, config, split, files):
    import pyarrow.parquet as pq

    for path in files:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group).to_pylist()
        for column in file.schema_arrow.names:
            file.read(columns=[column])


def read_polars(folder, config, split, files):
    import polars

    for path in files:
        yield from polars.read_parquet(path).to_dicts()


def read_duckdb(folder, config, split, files):
    import duckdb

    for path in files:
        result = duckdb.sql(f"SELECT * FROM read_parquet('{path}')")
        names = result.columns
        yield from (dict(zip(names, row, strict=True)) for row in result.fetchall())


def read_pandas(folder, config, split, files):
    import pandas

    for path in files:
        yield from pandas.read_parquet(path, dtype_backend="pyarrow").to_dict("records")


def undecoded(dataset):
    """Yield the rows, with images as bytes."""
    from datasets import Image

    def off(feature):
        if isinstance(feature, Image):
            return Image(decode=False)
        if isinstance(feature, dict):
            return {name: off(inner) for name, inner in feature.items()}
        if isinstance(feature, list):
            return [off(feature[0])]
        if hasattr(feature, "feature"):
            return type(feature)(off(feature.feature))
        return feature

    from datasets import Features

    # Read the images decoded, as users do, then as bytes, to compare the values
    for _ in dataset:
        pass
    return dataset.cast(Features({name: off(feature) for name, feature in dataset.features.items()}))


def read_hub(streaming=False, select=False, by_files=False):
    def read(folder, config, split, files):
        from datasets import load_dataset

        if by_files or config == "manifest":
            made = load_dataset("parquet", data_files={split: files}, split=split, streaming=streaming)
        else:
            made = load_dataset(folder, config, split=split, streaming=streaming)
        if config != "manifest":
            check_names(made.features, config)
        if not select:
            yield from undecoded(made)
            return
        columns = [undecoded(made.select_columns([name])) for name in made.column_names]
        for rows in zip(*columns, strict=True):
            yield {name: value for row in rows for name, value in row.items()}

    return read


def check_names(features, config):
    """Check that the codes of labels still have their names."""
    if config in ("localization", "detection", "multilabel") and "ClassLabel" not in str(features["labels"]):
        raise ValueError("the codes of `labels` have lost their names")


WAYS = {
    "pyarrow": read_pyarrow,
    "polars": read_polars,
    "duckdb": read_duckdb,
    "pandas": read_pandas,
    "plain": read_hub(),
    "stream": read_hub(streaming=True),
    "parquet": read_hub(by_files=True),
    "columns": read_hub(select=True),
}


def main():
    way, folders = WAYS[sys.argv[1]], sys.argv[2:]
    names = ("pyarrow", "datasets", "polars", "duckdb", "pandas", "numpy")
    lines = []
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            lines.append(f"{name} {version(name)}")
    print(json.dumps({"versions": ", ".join(lines)}), flush=True)
    for folder in folders:
        digest = hashlib.sha256()
        name = os.sep.join(folder.split(os.sep)[-2:])
        try:
            for (config, split), files in tables(folder).items():
                for row in way(folder, config, split, files):
                    digest.update(json.dumps([config, split, plain(row)], sort_keys=True).encode())
            print(json.dumps({"folder": name, "digest": digest.hexdigest()}), flush=True)
        except Exception as error:
            text = " ".join(f"{config}/{split}: {type(error).__name__}: {error}".split())
            print(json.dumps({"folder": name, "error": text}), flush=True)


main()
