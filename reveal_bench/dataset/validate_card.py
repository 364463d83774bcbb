"""Validate the files that describe a dataset folder (card, ``eval.yaml``, citation, Croissant), and check that it
loads.

The configs, splits and numbers of rows that the card states are compared with the files. Then every config and split is
loaded with `datasets`, offline.
"""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.dataset.card import PLACE, SECTIONS, front_matter, read_yaml, sections
from reveal_bench.dataset.citation import CITATION, ZENODO
from reveal_bench.dataset.croissant import CONFORMS_TO, RAI, REQUIRED
from reveal_bench.dataset.tables import MANIFEST, DatasetFolder, TableFile
from reveal_bench.kinds.folder import split_shards
from reveal_bench.sources.source import Problem

if TYPE_CHECKING:
    from datasets import Features

CARD, EVAL, CROISSANT = "README.md", "eval.yaml", "croissant.json"
LOAD_BYTES = 1 << 30
"""Size of a split, in bytes, up to which it is loaded completely.

Larger splits are streamed, because `datasets` makes a copy of a loaded split.
"""


@dataclass
class Promise:
    """The contents of a dataset folder that its card states.

    Attributes
    ----------
    rows : dict from config and split to number of rows
    patterns : dict from config and split to pattern of the files
    features : dict from config to Features
    default : config that is loaded if the user names none
    """

    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    patterns: dict[str, dict[str, str]] = field(default_factory=dict)
    features: dict[str, Features] = field(default_factory=dict)
    default: str | None = None


def read_promise(folder: Path) -> tuple[Promise, list[Problem]]:
    """Return (contents that the card states, problems of its YAML block)."""
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    try:
        block, _ = front_matter((folder / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return Promise(), [Problem(CARD, None, "YAML", "must be readable", str(error))]
    promise = Promise()
    try:
        for config in block["configs"]:
            name = config["config_name"]
            promise.patterns[name] = {files["split"]: files["path"] for files in config["data_files"]}
            if config.get("default"):
                promise.default = name
        for name, info in DatasetInfosDict.from_dataset_card_data(DatasetCardData(**block)).items():
            promise.features[name] = info.features
            promise.rows[name] = {split: entry.num_examples for split, entry in info.splits.items()}
    except Exception as error:  # an edited card can be wrong in any way, and `datasets` explains it
        rule = "must list every config under `configs` and `dataset_info`"
        return promise, [Problem(CARD, None, "YAML", rule, f"{type(error).__name__}: {error}")]
    return promise, []


def card_problems(folder: DatasetFolder, promise: Promise, tables: Mapping[TableFile, int]) -> Iterator[Problem]:
    """Yield problems of the card; `tables` maps every Parquet file to its number of rows."""
    try:
        text = (folder.path / CARD).read_text(encoding="utf-8")
        block, body = front_matter(text)
    except (OSError, ValueError):
        return  # read_promise reports it
    for name in sorted({match[1] for match in PLACE.finditer(text)}):
        yield Problem(CARD, None, "places", "must be filled", f"{{{{{name}}}}}")
    if not folder.is_private:
        by_heading = sections(body)
        for heading in SECTIONS:
            if not by_heading.get(heading):
                got = "an empty one" if heading in by_heading else "no such section"
                yield Problem(CARD, heading, "sections", "must have text", got)
        for name in ("license", "task_categories", "size_categories", "pretty_name", "language"):
            if not block.get(name):
                yield Problem(CARD, None, name, "must be in the YAML block", repr(block.get(name)))
        if "Not for clinical use" not in body:
            yield Problem(CARD, None, "notice", "must say `Not for clinical use`", "no such words")
    if folder.info.synthetic and not folder.is_private and "SYNTHETIC" not in body:
        yield Problem(
            CARD, None, "notice", "must contain the word SYNTHETIC, because the data are synthetic", "no such word"
        )
    yield from _config_problems(folder, promise, tables)


def _config_problems(folder: DatasetFolder, promise: Promise, tables: Mapping[TableFile, int]) -> Iterator[Problem]:
    counted: dict[str, dict[str, int]] = {}
    for table, n_rows in tables.items():
        if table.config != MANIFEST:
            splits = counted.setdefault(table.config, {})
            splits[table.split] = splits.get(table.split, 0) + n_rows
    if promise.rows and promise.default != folder.kind.config:
        yield Problem(
            CARD, None, "configs", f"must have {folder.kind.config} as the default config", repr(promise.default)
        )
    for config in sorted(promise.patterns.keys() ^ promise.rows.keys()):
        rule = "must be listed under both `configs` and `dataset_info`"
        yield Problem(CARD, config, "configs", rule, "one of the two")
    for config in sorted(counted.keys() | promise.rows.keys()):
        files, card = counted.get(config, {}), promise.rows.get(config, {})
        for split in sorted(files.keys() | card.keys()):
            if files.get(split) != card.get(split):
                rule = f"must state {files.get(split, 0)} rows, as in the files"
                yield Problem(CARD, config, split, rule, str(card.get(split, "nothing")))


def eval_problems(folder: DatasetFolder, promise: Promise) -> Iterator[Problem]:
    """Yield a problem if ``eval.yaml`` is incomplete, or names configs or splits that do not exist."""
    import yaml

    try:
        document = yaml.safe_load((folder.path / EVAL).read_text(encoding="utf-8"))
        tasks = [(str(task["id"]), task["config"], task["split"]) for task in document["tasks"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        rule = "must list tasks, each with id, config and split"
        yield Problem(EVAL, None, "tasks", rule, f"{type(error).__name__}: {error}")
        return
    for name in ("name", "description", "evaluation_framework"):
        if not document.get(name):
            yield Problem(EVAL, None, name, "must exist", repr(document.get(name)))
    if not tasks:
        yield Problem(EVAL, None, "tasks", "must name at least one", "none")
    for task_id, n in Counter(task_id for task_id, _, _ in tasks).items():
        if n > 1:
            yield Problem(EVAL, task_id, "tasks", "must have a unique id", f"{n} of them")
    for task_id, config, split in tasks:
        if split not in promise.rows.get(config, {}):
            yield Problem(EVAL, task_id, "tasks", "must name a config and a split of the card", f"{config}, {split}")


def citation_problems(folder: DatasetFolder) -> Iterator[Problem]:
    """Yield a problem if ``CITATION.cff`` or ``.zenodo.json`` exists but does not state authors and this version."""
    import yaml

    for file, fixed, authors in (
        (CITATION, {"cff-version": "1.2.0"}, "authors"),
        (ZENODO, {"upload_type": "dataset"}, "creators"),
    ):
        path = folder.path / file
        if not path.exists():
            continue
        try:
            document = read_yaml(path.read_text(encoding="utf-8"))  # reads JSON, too
            expected = {**fixed, "version": folder.info.version}
            wrong = [(name, f"must be {value}") for name, value in expected.items() if document.get(name) != value]
            wrong += [(name, "must exist") for name in ("title", authors) if not document.get(name)]
        except (OSError, ValueError, yaml.YAMLError, AttributeError) as error:
            yield Problem(file, None, "YAML", "must be a valid citation file", type(error).__name__)
            continue
        for name, rule in wrong:
            yield Problem(file, None, name, rule, repr(document.get(name)))


def croissant_problems(folder: DatasetFolder, promise: Promise, sums: Mapping[str, str]) -> Iterator[Problem]:
    """Yield a problem if ``croissant.json`` does not describe exactly the files of the folder.

    Parameters
    ----------
    sums : dict from relative path to sha256 of every file, as in CHECKSUMS.json
    """
    try:
        document = json.loads((folder.path / CROISSANT).read_text(encoding="utf-8"))
        files = {entry["@id"]: entry for entry in document["distribution"] if entry["@type"] == "cr:FileObject"}
        record_sets = {entry["@id"] for entry in document["recordSet"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule = "must be a Croissant document with `distribution` and `recordSet`"
        yield Problem(CROISSANT, None, "file", rule, f"{type(error).__name__}: {error}")
        return
    for name in [path for path in sums if path.endswith(".parquet")]:
        if name not in files:
            yield Problem(CROISSANT, name, "distribution", "must describe every table", "no such entry")
    for name, entry in files.items():
        if name not in sums:
            yield Problem(CROISSANT, name, "distribution", "must only describe files of the folder", "no such file")
        elif entry.get("sha256") != sums[name]:
            yield Problem(CROISSANT, name, "sha256", f"must be {sums[name]}", str(entry.get("sha256")))
    for config in sorted({*promise.rows, MANIFEST} - record_sets):
        yield Problem(CROISSANT, config, "recordSet", "must describe every config", "no such entry")
    for name in RAI:
        if not document.get(name):
            yield Problem(CROISSANT, None, name, "must exist", repr(document.get(name)))
    if sorted(document.get("conformsTo", ())) != sorted(CONFORMS_TO):
        yield Problem(
            CROISSANT, None, "conformsTo", f"must be {', '.join(CONFORMS_TO)}", str(document.get("conformsTo"))
        )


MAKERS_FIELDS = ("url", "creator", "datePublished")


def required_problems(folder: DatasetFolder, warnings: list[Problem]) -> Iterator[Problem]:
    """Yield a problem for each field that Croissant 1.1 requires but ``croissant.json`` lacks.

    Parameters
    ----------
    warnings : list to which missing fields are added if only the makers of the dataset can fill them
    """
    if not _is_json(folder.path / CROISSANT):
        return  # croissant_problems reports it
    document = json.loads((folder.path / CROISSANT).read_text(encoding="utf-8"))
    for name in REQUIRED:
        if document.get(name):
            continue
        is_makers = name in MAKERS_FIELDS  # a card that the makers wrote may lack them, whatever the source
        remedy = f"give `{name}` in the block `croissant` of your card, and build with --card"
        rule = f"must exist, as Croissant 1.1 requires: {remedy if is_makers else 'build the folder again'}"
        problem = Problem(CROISSANT, None, name, rule, repr(document.get(name)))
        if is_makers:
            warnings.append(problem)
        else:
            yield problem


def mlcroissant_problems(folder: Path) -> Iterator[Problem]:
    """Yield the problems that mlcroissant finds in ``croissant.json``; none without mlcroissant or valid JSON."""
    if find_spec("mlcroissant") is None or not _is_json(folder / CROISSANT):
        return
    mlcroissant = import_module("mlcroissant")
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)  # mlcroissant's warnings (no date) are not printed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation warnings that only mlcroissant can resolve
            mlcroissant.Dataset(str(folder / CROISSANT))
    except Exception as error:  # a broken document can raise any error in mlcroissant, not only its ValidationError
        yield Problem(CROISSANT, None, "file", "must be valid according to mlcroissant", " ".join(str(error).split()))
    finally:
        logger.setLevel(level)


def _is_json(path: Path) -> bool:
    try:
        return isinstance(json.loads(path.read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def load_problems(folder: Path, promise: Promise) -> Iterator[Problem]:
    """Yield a problem for each config and split that a user could not load from the folder's files."""
    import datasets

    was_quiet = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with tempfile.TemporaryDirectory() as cache:
            for config, splits in promise.rows.items():
                for split, n_rows in splits.items():
                    try:
                        loaded = _n_loaded(folder, config, split, cache)
                    except Exception as error:  # any error that a user would get is a problem of the folder
                        reason = f"{type(error).__name__}: {error}"
                        yield Problem(CARD, config, split, "must load with load_dataset", reason)
                        continue
                    if loaded != n_rows:
                        yield Problem(CARD, config, split, f"must load {n_rows} rows", str(loaded))
    finally:
        if not was_quiet:
            datasets.enable_progress_bars()


def _n_loaded(folder: Path, config: str, split: str, cache: str) -> int:
    from datasets import load_dataset

    size = sum(path.stat().st_size for path in split_shards(folder, config, split))
    if size <= LOAD_BYTES:
        return len(load_dataset(str(folder), config, split=split, cache_dir=cache))
    streamed: Any = load_dataset(str(folder), config, split=split, streaming=True)
    undecoded = streamed.with_format("arrow")
    return sum(len(table) for table in undecoded.iter(batch_size=8))
