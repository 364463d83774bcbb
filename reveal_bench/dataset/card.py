"""The dataset card (README.md): a template into which a build fills the counts of the data.

A template, ``dataset_cards/<benchmark>.md``, has prose and placeholders ``{{name}}``. :func:`render_card` fills the
placeholders with the counts of the splits and adds `configs` and `dataset_info` to the YAML block. Of a private
holdout, the public card states only the number of rows.

A template has every section of :data:`SECTIONS`. They follow the Hub's guide for dataset cards and provide the text of
Croissant's RAI (responsible AI) fields, see :mod:`reveal_bench.dataset.croissant`.

The module also writes ``eval.yaml``, which the Hub reads to list a dataset as a benchmark.

The file has the fields `name`, `description`, `evaluation_framework` and `tasks`; each task has `id`, `config` and
`split`. A task is one metric of one split, because the Hub ranks all values of a task in one list. Splits of the main
config are scored locally with ``reveal-bench score``; answers to a holdout's inputs are scored only by the leaderboard.
A comment in the file says that it has no effect until the Hub's maintainers have added the framework and the
repository.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import Benchmark, bundled
from reveal_bench.dataset import card_tables
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.hub_tasks import hub_metrics, hub_task
from reveal_bench.kinds.split_counts import Tally
from reveal_bench.metrics import METRICS
from reveal_bench.words import count_text

if TYPE_CHECKING:
    from datasets import Features

PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
SECTIONS = (
    "Summary", "How to load", "Configs and splits", "Features", "Collection", "Annotation", "Demographics",
    "Known holes", "Intended and out-of-scope use", "Enrichment and prevalence", "Contamination", "Licence and terms",
    "Privacy", "Maintenance", "Citation",
)  # fmt: skip
"""Headings that every card must have."""
SIZE_CATEGORIES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
SYNTHETIC_LICENCE = "apache-2.0"
"""Licence of synthetic data, which is the licence of this program."""


@dataclass(frozen=True, slots=True)
class Config:
    """A config of the dataset folder, for the card's YAML block.

    Attributes
    ----------
    splits : dict from split to (rows, bytes)
    features : features of the config's rows
    default : True if `load_dataset` loads this config when no config is named
    """

    name: str
    splits: Mapping[str, tuple[int, int]]
    features: Features
    default: bool = False


def card_template(benchmark: Benchmark) -> str:
    """Return the text of the benchmark's template, with the kind of benchmark and the questions filled in.

    Raises
    ------
    ValueError
        If the template is missing.
    """
    path = _template_path(benchmark)
    if not path.is_file():
        raise ValueError(f"the benchmark {benchmark.name!r} needs a card: {template_name(benchmark)} is missing")
    asked = " ".join(filter(None, (KINDS[benchmark.kind].display.asked_in_words, benchmark.note)))
    values = {"form": benchmark.kind, "asked": asked}
    return PLACE.sub(lambda place: values.get(place[1], place[0]), path.read_text(encoding="utf-8"))


def _template_path(benchmark: Benchmark) -> Path:
    return bundled("dataset_cards") / f"{(benchmark.card or benchmark.name).removesuffix('.md')}.md"


def template_name(benchmark: Benchmark) -> str:
    """Return the template's path for messages, relative to the project unless it is a user's own template."""
    path = _template_path(benchmark)
    return f"dataset_cards/{path.name}" if path.parent == bundled("dataset_cards") else str(path)


def with_card(benchmark: Benchmark, path: Path) -> Benchmark:
    """Return the benchmark with a user's card as template and with the card's first heading as title.

    Raises
    ------
    ValueError
        If the file lacks a YAML block, a title or one of :data:`SECTIONS`, or a section is blank.
    """
    if path.suffix != ".md" or not path.is_file():
        raise ArgumentError("card", "must be a Markdown file (.md)", path)
    _, body = front_matter(path.read_text(encoding="utf-8"))
    title = re.search(r"^# +(.+?) *$", body, flags=re.MULTILINE)
    written = sections(body)
    missing = [heading for heading in SECTIONS if not written.get(heading)]
    if title is None or missing:
        lacking = [*(["a title (# ...)"] if title is None else []), *(f"## {heading}" for heading in missing)]
        raise ArgumentError("card", "must have a title and every section of a card", f"{path} without {lacking[0]}")
    own = benchmark.title if PLACE.search(title[1]) else title[1]
    return replace(benchmark, card=str(path.resolve()), title=own)


def front_matter(card: str) -> tuple[dict[str, Any], str]:
    """Return (YAML block as a dict, body) of a card.

    Raises
    ------
    ValueError
        If the card does not begin with a YAML mapping.
    """
    parts = card.split("---\n", 2)
    block = deepcopy(_parsed(parts[1])) if len(parts) == 3 and not parts[0].strip() else None
    if not isinstance(block, dict):
        raise ValueError("the card must begin with a YAML block between two lines of three hyphens")
    return block, parts[2]


def read_yaml(text: str) -> Any:
    """Return the content of a YAML text; an impossible date, such as 2026-02-30, is returned as text.

    Raises
    ------
    yaml.YAMLError
        If the text is not YAML, or refers to Python objects.
    """
    import yaml

    return yaml.load(text, _loader())


@lru_cache(maxsize=1)
def _loader() -> Any:
    """Return a safe YAML loader, based on libyaml if it is installed because that is many times faster."""
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    def date_or_text(loader: Any, node: yaml.ScalarNode) -> Any:
        try:
            return loader.construct_yaml_timestamp(node)
        except ValueError:  # the message would name neither field nor value, but a later check names both
            return node.value

    loader: Any = type("CardLoader", (base,), {})
    loader.add_constructor("tag:yaml.org,2002:timestamp", date_or_text)  # only changes this class
    return loader


@lru_cache(maxsize=4)
def _parsed(text: str) -> Any:
    """Return the content of a YAML block; cached, because one check reads the same long block several times."""
    import yaml

    try:
        return read_yaml(text)
    except yaml.YAMLError as error:
        raise ValueError(f"the card's YAML block is not valid YAML: {error}") from None


def sections(body: str) -> dict[str, str]:
    """Return a dict from heading to text of the second-level sections of a card."""
    pieces = re.split(r"^## +(.+?) *$", body, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], (piece.strip() for piece in pieces[2::2]), strict=True))


def _not_asked(benchmark: Benchmark) -> str:
    names = ", ".join(benchmark.not_asked)
    return f"\n\nFindings of the source that this dataset does not ask: {names}." if names else ""


def render_card(
    benchmark: Benchmark,
    tallies: Mapping[str, Tally],
    *,
    version: str,
    features: Features,
    configs: Sequence[Config],
    embedded: bool,
    n_holdout: int | None,
    asks: str,
    synthetic: bool,
) -> str:
    """Return the text of the public ``README.md``.

    Parameters
    ----------
    tallies : dict from split to counts, for the splits with public references
    features : features of the main config
    embedded : True if the folder contains pictures
    n_holdout : number of rows of the private holdout; None without a holdout

    Raises
    ------
    ValueError
        If the template is missing, or has a placeholder that this function does not fill.
    """
    template = card_template(benchmark)
    findings = benchmark.findings
    n_rows = sum(tally.n_rows for tally in tallies.values())
    values = {
        "title": ("Synthetic stand-in for " if synthetic else "") + benchmark.title,
        "notice": _notice(synthetic),
        "version": version,
        "canary": f"reveal-bench canary {uuid.uuid5(uuid.NAMESPACE_URL, f'reveal-bench/{benchmark.name}')}",
        "n_images": f"{sum(len(tally.images) for tally in tallies.values()):,}",
        "n_studies": f"{sum(len(tally.studies) for tally in tallies.values()):,}",
        "n_tasks": f"{n_rows:,}",
        "load_example": _load_example(configs, version),
        "splits_table": card_tables.splits_table(tallies, n_holdout),
        "configs_table": card_tables.configs_table([(config.name, config.splits) for config in configs]),
        "findings_table": card_tables.findings_table(tallies, findings) + _not_asked(benchmark),
        "views_table": card_tables.views_table(tallies),
        "missing_list": card_tables.missing_list(tallies, findings),
        "features_table": card_tables.features_table(features),
        "demographics_table": card_tables.demographics_table(tallies),
        "agreement_table": card_tables.agreement_table(tallies),
        "acquisition_table": card_tables.acquisition_table(tallies),
        "categories_table": card_tables.categories_table(tallies),
        "ratings_table": card_tables.ratings_table(tallies),
        "pixels": _pixels(benchmark.kind, embedded),
        "holdout": _holdout(benchmark.kind, n_holdout, configs, asks),
    }
    unknown = {name for name in PLACE.findall(template) if name not in values}
    if unknown:
        raise ValueError(f"{template_name(benchmark)}: no value for the placeholders {', '.join(sorted(unknown))}")
    block, body = front_matter(PLACE.sub(lambda match: values[match[1]], template))
    block.pop("croissant", None)  # only for reveal_bench.dataset.origin; the Hub has no such field
    n_all = n_rows + (n_holdout or 0)
    block["size_categories"] = [next((name for limit, name in SIZE_CATEGORIES if n_all < limit), "1M<n<10M")]
    return _front_matter(_synthetic_terms(block) if synthetic else block, configs) + body


def private_card(benchmark: Benchmark, *, configs: Sequence[Config], n_rows: int) -> str:
    """Return the text of the ``README.md`` of a private holdout of `n_rows` images, studies or tasks."""
    n_references = count_text(n_rows, KINDS[benchmark.kind].unit)
    body = f"""
# PRIVATE: holdout references of {benchmark.title}

The references of {n_references}, without pixels. **Never publish this folder** or copy it into a public folder. Release
only what the leaderboard releases. `reveal-bench score FILE FOLDER --split holdout` and the leaderboard's worker
compute scores from this folder.
"""
    metadata = {"license": "other", "license_name": "private", "pretty_name": f"PRIVATE holdout of {benchmark.title}"}
    return _front_matter(metadata, configs) + body


def _front_matter(metadata: dict[str, Any], configs: Sequence[Config]) -> str:
    from datasets import DatasetInfo, SplitDict, SplitInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    data = DatasetCardData(**metadata)
    infos = {}
    for config in configs:
        splits = SplitDict()
        for split, (n_rows, n_bytes) in config.splits.items():
            splits.add(SplitInfo(split, num_bytes=n_bytes, num_examples=n_rows))
        total = sum(n_bytes for _, n_bytes in config.splits.values())
        infos[config.name] = DatasetInfo(
            config_name=config.name, features=config.features, splits=splits, dataset_size=total, download_size=total
        )
    DatasetInfosDict(infos).to_dataset_card_data(data)
    data["configs"] = [_config_entry(config) for config in configs]
    return f"---\n{data.to_yaml()}\n---\n"


def _config_entry(config: Config) -> dict[str, Any]:
    files = [{"split": split, "path": f"{config.name}/{split}-*.parquet"} for split in config.splits]
    return {"config_name": config.name, "data_files": files, **({"default": True} if config.default else {})}


def _synthetic_terms(block: dict[str, Any]) -> dict[str, Any]:
    """Return the YAML block with the terms for synthetic data instead of the terms of the real source."""
    unrestricted = {name: value for name, value in block.items() if not name.startswith(("license_", "extra_gated_"))}
    return unrestricted | {
        "license": SYNTHETIC_LICENCE,
        "annotations_creators": ["machine-generated"],
        "source_datasets": ["original"],
        "tags": [*block.get("tags", ()), "synthetic"],
    }


def _notice(synthetic: bool) -> str:
    if not synthetic:
        return "> **Not for clinical use.** For research on models, not for decisions about patients."
    return (
        "> **SYNTHETIC.** The program `reveal_bench.phantom` drew every picture, label, mask and point "
        "of this dataset; none comes from a patient. The dataset has the layout of the real download so that "
        "tools can be tried. The sections below describe how the real data were collected, and the terms of "
        "the real data. All numbers refer to this synthetic dataset, whose licence is {SYNTHETIC_LICENCE}. "
        "Scores on this dataset say nothing about a model. **Not "
        "for clinical use.**"
    )


def _load_example(configs: Sequence[Config], version: str) -> str:
    lines = ["from datasets import load_dataset  # 2.21 or newer", ""]
    for config in configs:
        lines += [f'load_dataset("path/to/folder", "{config.name}", split="{split}")' for split in config.splits]
    lines += ["", "# from the Hub, always with a version", f'load_dataset("org/repo", revision="v{version}")']
    return "```python\n" + "\n".join(lines) + "\n```"


def _pixels(kind: str, embedded: bool) -> str:
    if embedded:
        return (
            "Pictures are embedded. JPEG and 8-bit PNG files have the source's coded pixels; DICOM and "
            "16-bit PNG files were converted to 8-bit PNG as the column `pixel_pipeline` describes."
        )
    return (
        f"Pixels are withheld: {KINDS[kind].display.picture_words} null. "
        "`reveal-bench attach FOLDER DOWNLOAD --out NEW` adds pictures from your own copy of the source, "
        "and verifies each file by `source_sha256` unless that is null."
    )


def _holdout(kind: str, n_holdout: int | None, configs: Sequence[Config], asks: str) -> str:
    if n_holdout is None:
        return "This folder has no private holdout."
    inputs = ""
    if any(config.name == "holdout_inputs" for config in configs):
        inputs = ", and the config `holdout_inputs` has their inputs without references"
    verb = "is" if n_holdout == 1 else "are"
    disclosure = KINDS[kind].questions.manifest_disclosure(asks)
    return (
        f"{count_text(n_holdout, KINDS[kind].unit)} {verb} held out, and no patient is both released and held out. The "
        f"manifest lists the held-out rows{inputs}; only the maintainer has their references. {disclosure}"
    )


FRAMEWORK = "reveal-bench"
OURS = f"""\
# `evaluation_framework: {FRAMEWORK}`: `reveal-bench score` computes the scores, for a holdout the leaderboard.
# The Hub lists a benchmark only if huggingface.js (packages/tasks/src/eval.ts) knows its framework, and it does not
# know this framework. It knows `inspect-ai`, which needs columns of questions and answers and scores differently.
"""
INPUTS = "holdout_inputs"


def render_eval_yaml(benchmark: Benchmark, configs: Sequence[Config], *, version: str) -> str:
    """Return the text of ``eval.yaml``, with a task per metric and split of the main config and of a holdout's inputs.

    Parameters
    ----------
    configs : configs of the folder; the default config is the main config
    """
    import yaml

    tasks = [
        {"id": hub_task(benchmark.name, split, metric), "config": config.name, "split": split}
        for config in configs
        if config.default or config.name == INPUTS
        for split in config.splits
        for metric in hub_metrics(benchmark, released_only=config.name == INPUTS)
    ]
    scales = ", ".join(METRICS[metric].scale for metric in hub_metrics(benchmark))
    question = KINDS[benchmark.kind].display.question
    document = {
        "name": benchmark.title,
        "description": f"{question} Version {version}. Values are not percentages; scales: {scales}.",
        "evaluation_framework": FRAMEWORK,
        "tasks": tasks,
    }
    return OURS + yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
