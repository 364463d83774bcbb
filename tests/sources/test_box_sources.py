"""Every further source from its synthetic twin to a scored file; plain `datasets`, without this package, loads it."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from reveal_bench.benchmarks import BENCHMARKS, SOURCES
from reveal_bench.dataset.build import BuildLog, build_folder
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.dataset.validate_card import mlcroissant_problems
from reveal_bench.evaluation.baselines import chance_baseline, fit_location_prior, location_prior_baseline
from reveal_bench.evaluation.score import score_file
from reveal_bench.kinds.folder import FolderInfo, read_folder_info
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import read_localization, read_manifest
from reveal_bench.kinds.options import ScoringOptions
from reveal_bench.phantom import LAYOUTS, write_reveal
from reveal_bench.sources import chexlocalize, midrc
from reveal_bench.sources.source import SourceData
from tests.sources.reveal_trees import KEY

STYLES = {
    style: name
    for name, (source, benchmark) in SOURCES.items()
    for style in source.styles
    if benchmark.kind == "localization" and name != "chexlocalize"
}
"""Style of the synthetic twin -> source."""
TEST_SPLIT = {"vinbigdata": "train", "rsna-pneumonia": "train", "siim-acr": "train"}
EXTRAS = {
    "ms-cxr": {"phrases"},
    "vindr-cxr": {"image_labels", "readers"},
    "vinbigdata": {"readers"},
    "rsna-pneumonia": {"classes"},
    "padchest-gr": {"sentences"},
}
WITH_MASKS = {"chestx-det", "siim-acr", "chexlocalize"}


def module_of(source: str) -> ModuleType:
    return importlib.import_module(f"reveal_bench.sources.{STYLES[source].replace('-', '_')}")


def read_twin(source: str, root: Path) -> SourceData:
    pictures = {"pictures": root / "pictures"} if (root / "pictures").is_dir() else {}
    source_data: SourceData = module_of(source).read(root, pixels="embed", keep_going=True, **pictures)
    return source_data


@dataclass(frozen=True)
class Built:
    """A synthetic download, the data read from it, and the folders built from it."""

    twin: Path
    source_data: SourceData
    public: Path
    private: Path
    info: FolderInfo
    log: BuildLog


@pytest.fixture(scope="module")
def built(twin_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Built]:
    root = tmp_path_factory.mktemp("sources")
    everything = {}
    for source in STYLES:
        twin, public, private = twin_of(source), root / source / "public", root / source / "private"
        source_data, log = read_twin(source, twin), BuildLog()
        benchmark = BENCHMARKS[STYLES[source]]
        info = build_folder(
            source_data.splits, public, benchmark, holdout=private, holdout_split=TEST_SPLIT.get(source, "test"),
            extras=source_data.extras, keep_going=True, synthetic=source_data.synthetic, log=log,
        )  # fmt: skip
        everything[source] = Built(twin, source_data, public, private, info, log)
    return everything


@pytest.mark.parametrize("source", STYLES)
def test_a_twin_is_recognised_and_becomes_two_valid_folders(built: Mapping[str, Built], source: str) -> None:
    own = built[source]
    assert module_of(source).detect(own.twin) == 1
    assert module_of(source).inspect(own.twin, pictures=None).synthetic
    assert own.source_data.synthetic
    recognised = {name for name in STYLES if module_of(name).detect(own.twin)}
    assert recognised <= {source, "vindr-cxr", "vinbigdata"}
    assert own.log.left_out == []
    assert own.info.synthetic
    assert own.info.splits["holdout"]["references"] == "private"
    # whether `datasets` loads them is asked of all folders at once below
    assert validate_folder(own.public, holdout=own.private, load=False) == []
    assert list(mlcroissant_problems(own.public)) == []
    assert validate_folder(own.private, load=False) == []
    assert {extra.config for extra in own.source_data.extras} == EXTRAS.get(source, set())
    n_read = sum(len(list(records)) for records in own.source_data.splits.values())
    assert sum(entry["n_images"] for entry in own.info.splits.values()) == n_read


@pytest.fixture(scope="module")
def more_built(download: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Built]:
    """Folders of the two sources whose synthetic counterparts have their own writers, CheXlocalize and MIDRC."""
    root = tmp_path_factory.mktemp("more")
    twin = root / "midrc"
    write_reveal(twin, n_studies=8, seed=3, long_side=64, layout="midrc")
    everything = {}
    for name, place, source_data in (
        ("chexlocalize", download, chexlocalize.read(download)),
        ("reveal-cxr", twin, midrc.read(twin, id_key=KEY)),
    ):
        assert source_data.synthetic
        public, private, log = root / name / "public", root / name / "private", BuildLog()
        info = build_folder(
            source_data.splits, public, BENCHMARKS[name], holdout=private, holdout_split="test",
            extras=source_data.extras, synthetic=source_data.synthetic, log=log,
        )  # fmt: skip
        everything[name] = Built(place, source_data, public, private, info, log)
    return everything


def test_plain_datasets_loads_every_config_and_split_of_every_source(
    built: Mapping[str, Built], more_built: Mapping[str, Built], tmp_path: Path
) -> None:
    """In one process that has neither this package nor a network."""
    script = """
import json, sys
sys.modules["reveal_bench"] = None  # cannot be imported, though it may be installed
import datasets
datasets.disable_progress_bars()
folders = {}
for folder in sys.argv[1:]:
    folders[folder] = {}
    for config in datasets.get_dataset_config_names(folder):
        for split, rows in datasets.load_dataset(folder, config).items():
            first, fits = rows[0], None
            if config == "preview":
                fits = max(first["image"].size) <= 384
            elif first.get("image") is not None:
                fits = first["image"].size == (first["width"], first["height"])
            if first.get("images") and first["images"][0] is not None:  # a private folder has no pixels
                sizes = [(facts["width"], facts["height"]) for facts in first["image_facts"]]
                fits = [image.size for image in first["images"]] == sizes
            folders[folder][f"{config}/{split}"] = [len(rows), fits]
print(json.dumps(folders))
"""
    everything = {**built, **more_built}
    folders = [str(folder) for own in everything.values() for folder in (own.public, own.private)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, *folders],
        capture_output=True, text=True, check=False, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    loaded: dict[str, dict[str, list[Any]]] = json.loads(done.stdout.splitlines()[-1])
    for source, own in everything.items():
        public, private = loaded[str(own.public)], loaded[str(own.private)]
        rows = {name: n for name, (n, _) in {**public, **private}.items()}
        main, unit = ("multilabel", "n_studies") if source == "reveal-cxr" else ("localization", "n_images")
        for split, entry in own.info.splits.items():
            assert rows[f"{main}/{split}"] == entry[unit]
        assert rows["holdout_inputs/holdout"] == own.info.splits["holdout"][unit]
        assert any(fits for _, fits in public.values())
        assert all(fits for _, fits in public.values() if fits is not None)  # pictures have the size of their row
        for extra in own.source_data.extras:
            assert sum(n for name, n in rows.items() if name.startswith(f"{extra.config}/")) == len(extra.rows)
        configs = {name.split("/")[0] for name in public}
        assert configs >= {main, "holdout_inputs"}
        assert ("masks" in configs) == (source in WITH_MASKS)
        assert not any(name.startswith("holdout_inputs") for name in private)


@pytest.mark.parametrize("source", ["nih-boxes", "siim-acr", "rsna-pneumonia"])
def test_a_baseline_is_scored_with_the_benchmark_s_metrics(
    built: Mapping[str, Built], tmp_path: Path, source: str
) -> None:
    own = built[source]
    manifest = read_manifest(own.public, "holdout")
    priors = fit_location_prior(read_localization(own.public, "released"), manifest.findings)
    answers = {
        "prior": location_prior_baseline(manifest, priors),
        "chance": chance_baseline(manifest),
    }
    for name, predictions in answers.items():
        file = tmp_path / f"{name}.jsonl"
        file.write_text(predictions_to_jsonl(predictions), encoding="utf-8")
        scored = score_file(file, own.private, "holdout", ScoringOptions(n_resamples=40))
        metrics = {estimate.metric for estimate in scored.estimates}
        wanted = set(BENCHMARKS[source].metrics) if name == "prior" else {"point_hit", "grid_hit"}
        assert metrics == wanted | {"grid_chance", "point_chance"}
    assert read_folder_info(own.public).benchmark == source


@pytest.mark.parametrize("source", STYLES)
def test_the_same_seed_gives_the_same_twin(source: str, tmp_path: Path) -> None:
    digests = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        seen: list[tuple[int, int]] = []
        LAYOUTS[source](
            tmp_path / name, n_images=2, seed=seed, long_side=64, traps=False, progress=lambda *n, s=seen: s.append(n)
        )
        assert seen == [(1, 2), (2, 2)]
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        digest = hashlib.sha256()
        for path in files:
            digest.update(path.relative_to(tmp_path / name).as_posix().encode() + path.read_bytes())
        digests.append(digest.hexdigest())
        assert "SYNTHETIC" in (tmp_path / name / "SYNTHETIC.txt").read_text()
    assert digests[0] == digests[1] != digests[2]


def test_a_twin_is_not_written_over_something(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(ValueError, match="`out` must be a new or empty folder, got "):
        LAYOUTS["nih-boxes"](tmp_path, n_images=1, seed=0, long_side=64)
    with pytest.raises(ValueError, match="`n_images` must be at least 1, got 0"):
        LAYOUTS["ms-cxr"](tmp_path / "new", n_images=0, seed=0, long_side=64)
