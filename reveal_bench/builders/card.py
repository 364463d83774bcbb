"""The dataset card: a template with its numbers filled in from what was built.

``dataset_cards/<benchmark>.md`` holds prose and ``{{name}}`` places, no count of the data. :class:`Tally` counts the
rows of one split while they are written; :func:`render_card` fills the places and adds `configs` and `dataset_info`
to the YAML block. Of a private holdout the public card tells the number of images and nothing else.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reveal_bench.benchmarks import Benchmark, bundled
from reveal_bench.builders.rows import Row
from reveal_bench.records import READERS, VIEWS

if TYPE_CHECKING:
    from datasets import Features

__all__ = ["Config", "Tally", "private_card", "render_card"]

_PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")
SIZE_CATEGORIES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))

MEANINGS = {
    "image": "file bytes of the radiograph (null where pixels are withheld)",
    "image_id": "id of the radiograph; predictions name it",
    "patient_id": "pseudonym of the patient; resampling and splits keep patients whole",
    "study_id": "id of the study",
    "view": "projection",
    "view_raw": "projection as the source writes it",
    "width": "pixels, of the grid that was annotated",
    "height": "pixels, of the grid that was annotated",
    "labels": "findings that are present",
    "label_status": "per finding 1 present, 0 absent, null unlabelled",
    "annotations": "per finding and reader: mask (COCO run lengths), contours (x, y), tight box, contours drawn, area",
    "points": "most representative point (x, y) of a finding, per reader",
    "missing": "findings that are present but were not drawn: unknown masks, not empty ones",
    "source_sha256": "sha256 of the picture file in the source download",
    "pixel_sha256": "sha256 of its decoded 8-bit grey pixels, row by row",
    "pixel_pipeline": "how the published pixels were made from the source's",
    "spacing_mm": "row and column spacing in mm, where known",
    "spacing_source": "which header field the spacing is from",
}


@dataclass
class Tally:
    """Counts over the rows of one split."""

    n_images: int = 0
    n_asked: int = 0
    patients: set[str] = field(default_factory=set)
    studies: set[str] = field(default_factory=set)
    views: Counter[int] = field(default_factory=Counter)
    positives: Counter[int] = field(default_factory=Counter)
    masks: Counter[tuple[int, str]] = field(default_factory=Counter)
    instances: Counter[int] = field(default_factory=Counter)
    points: Counter[int] = field(default_factory=Counter)
    missing: Counter[int] = field(default_factory=Counter)

    def add(self, row: Row, n_asked: int) -> None:
        """Count one row, of which `n_asked` findings are asked."""
        self.n_images += 1
        self.n_asked += n_asked
        self.patients.add(row["patient_id"])
        self.studies.add(row["study_id"])
        self.views[row["view"]] += 1
        self.positives.update(row["labels"])
        self.missing.update(row["missing"])
        self.points.update({point["label"] for point in row["points"]})
        for annotation in row["annotations"]:
            reader = READERS[annotation["reader"]]
            self.masks[annotation["label"], reader] += annotation["area_px"] > 0
            if reader == "ground_truth":
                self.instances[annotation["label"]] += annotation["n_instances"]

    @property
    def size(self) -> dict[str, int]:
        """What the manifest says of the split."""
        return {"n_images": self.n_images, "n_patients": len(self.patients), "n_asked": self.n_asked}


@dataclass(frozen=True, slots=True)
class Config:
    """A config of the repository: rows and bytes per split, from which the YAML block is made."""

    name: str
    splits: Mapping[str, tuple[int, int]]
    default: bool = False


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
    """Text of the public ``README.md``.

    Raises
    ------
    ValueError
        If the template has a place that this function does not fill.
    """
    import yaml

    template = (bundled("dataset_cards") / f"{benchmark.name}.md").read_text(encoding="utf-8")
    values = {
        "title": ("Synthetic stand-in for " if synthetic else "") + benchmark.title,
        "notice": _notice(synthetic),
        "version": version,
        "canary": f"reveal-bench canary {uuid.uuid5(uuid.NAMESPACE_URL, f'reveal-bench/{benchmark.name}')}",
        "n_images": f"{sum(tally.n_images for tally in tallies.values()):,}",
        "load_example": _load_example(configs, version),
        "splits_table": _splits_table(tallies, n_holdout),
        "findings_table": "\n\n".join(
            f"Split `{split}`:\n\n{_findings_table(tally, benchmark.findings)}" for split, tally in tallies.items()
        ),
        "views_table": _views_table(tallies),
        "missing_list": _missing_list(tallies, benchmark.findings),
        "features_table": _features_table(features),
        "pixels": _pixels(embedded),
        "holdout": _holdout(n_holdout, embedded, asks),
    }
    unknown = {name for name in _PLACE.findall(template) if name not in values}
    if unknown:
        raise ValueError(f"dataset_cards/{benchmark.name}.md: no value for the places {', '.join(sorted(unknown))}")
    filled = _PLACE.sub(lambda match: values[match[1]], template)
    _, block, body = filled.split("---\n", 2)
    n_all = sum(tally.n_images for tally in tallies.values()) + (n_holdout or 0)
    metadata = {**yaml.safe_load(block), "size_categories": [_size_category(n_all)]}
    return _front_matter(metadata, features, configs) + body


def private_card(benchmark: Benchmark, *, features: Features, configs: Sequence[Config], n_images: int) -> str:
    """Text of the ``README.md`` of a private holdout."""
    body = f"""
# PRIVATE: holdout references of {benchmark.title}

The labels, masks and points of {n_images:,} images, without pixels. **Never publish this folder**, never copy it into
a public one, and show of it nothing but what the leaderboard releases. Scores are computed from it by
`reveal-bench score FILE FOLDER --split holdout` or by the leaderboard's worker.
"""
    metadata = {"license": "other", "license_name": "private", "pretty_name": f"PRIVATE holdout of {benchmark.title}"}
    return _front_matter(metadata, features, configs) + body


def _front_matter(metadata: dict[str, Any], features: Features, configs: Sequence[Config]) -> str:
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
            config_name=config.name, features=features, splits=splits, dataset_size=total, download_size=total
        )
    DatasetInfosDict(infos).to_dataset_card_data(data)
    data["configs"] = [_config_entry(config) for config in configs]
    return f"---\n{data.to_yaml()}\n---\n"


def _config_entry(config: Config) -> dict[str, Any]:
    files = [{"split": split, "path": f"{config.name}/{split}-*.parquet"} for split in config.splits]
    return {"config_name": config.name, "data_files": files, **({"default": True} if config.default else {})}


def _size_category(n_images: int) -> str:
    return next((name for limit, name in SIZE_CATEGORIES if n_images < limit), "1M<n<10M")


def _notice(synthetic: bool) -> str:
    if not synthetic:
        return "> **Not for clinical use.** For research on models, not for decisions about patients."
    return (
        "> **SYNTHETIC.** Every picture, label, mask and point here was drawn by a program, `reveal_bench.phantom`; no "
        "patient is behind any of it. It has the layout of the real download so that tools can be tried on it. What "
        "the sections below say about how data were collected holds for the real set, the numbers for this one. "
        "Scores on it say nothing about a model. **Not for clinical use.**"
    )


def _load_example(configs: Sequence[Config], version: str) -> str:
    lines = ["from datasets import load_dataset", ""]
    for config in configs:
        lines += [f'load_dataset("path/to/folder", "{config.name}", split="{split}")' for split in config.splits]
    lines += ["", "# from the Hub, always with the version", f'load_dataset("org/repo", revision="v{version}")']
    return "```python\n" + "\n".join(lines) + "\n```"


def _splits_table(tallies: Mapping[str, Tally], n_holdout: int | None) -> str:
    rows = [
        [f"`{split}`", tally.n_images, len(tally.studies), len(tally.patients), tally.n_asked, "public"]
        for split, tally in tallies.items()
    ]
    if n_holdout is not None:
        rows.append(["`holdout`", n_holdout, "", "", "", "private"])
    return _table(["split", "images", "studies", "patients", "questions", "references"], rows)


def _findings_table(tally: Tally, findings: Sequence[str]) -> str:
    rows = [
        [
            finding,
            tally.positives[i],
            f"{100 * tally.positives[i] / tally.n_images:.1f} %",
            tally.masks[i, "ground_truth"],
            tally.instances[i],
            tally.missing[i],
            tally.masks[i, "human_benchmark"],
            tally.points[i],
        ]
        for i, finding in enumerate(findings)
    ]
    heads = ["finding", "present", "of images", "masks", "contours", "missing masks", "reader masks", "reader points"]
    return _table(heads, rows)


def _views_table(tallies: Mapping[str, Tally]) -> str:
    used = sorted({view for tally in tallies.values() for view in tally.views})
    rows = [[f"`{split}`", *(tally.views[view] for view in used)] for split, tally in tallies.items()]
    return _table(["split", *(VIEWS[view] for view in used)], rows)


def _missing_list(tallies: Mapping[str, Tally], findings: Sequence[str]) -> str:
    lines = [
        f"* split `{split}`: {sum(tally.missing.values()):,} present findings have no ground-truth mask"
        + "".join(f"; {findings[i]} {n:,}" for i, n in sorted(tally.missing.items()) if n)
        for split, tally in tallies.items()
    ]
    return "\n".join(lines)


def _features_table(features: Features) -> str:
    return _table(["column", "meaning"], [[f"`{name}`", MEANINGS[name]] for name in features])


def _pixels(embedded: bool) -> str:
    if embedded:
        return "Pictures are embedded as the source's own file bytes; `pixel_pipeline` says so per image."
    return (
        "Pixels are withheld: `image` is null. Attach your own download's pictures by `image_id`; "
        "`source_sha256`, where it is not null, verifies the file."
    )


def _holdout(n_holdout: int | None, embedded: bool, asks: str) -> str:
    if n_holdout is None:
        return "This folder has no private holdout."
    inputs = " and, without any reference, as the config `holdout_inputs`" if embedded else ""
    told = (
        "The manifest names the findings that are present in each of them, as the protocol tells a model what to look "
        "for: that is public, where they are is not."
        if asks == "present"
        else "The manifest asks for every finding of every image, so that it tells nothing of what is present."
    )
    return (
        f"{n_holdout:,} images are a private holdout, divided from the released ones by patient. They are in the "
        f"manifest{inputs}; their references are with the maintainer alone. {told}"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    lines = [list(heads), ["---"] * len(heads), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
