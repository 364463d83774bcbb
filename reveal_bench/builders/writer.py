"""One dataset folder while it is written: splits, manifests, card, checksums.

The layout is in :mod:`reveal_bench.builders.folder`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from reveal_bench.benchmarks import Asks, Benchmark
from reveal_bench.builders.card import Config, Tally, private_card, render_card
from reveal_bench.builders.rows import Row, localization_features
from reveal_bench.builders.shards import ShardWriter
from reveal_bench.records import FOLDER_INFO, VIEWS, FolderInfo

if TYPE_CHECKING:
    from datasets import Features

__all__ = ["CHECKSUMS", "FolderWriter", "SplitWriter", "file_sha256"]

CHECKSUMS = "CHECKSUMS.json"


def file_sha256(path: Path) -> str:
    """Hexadecimal sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass
class SplitWriter:
    """A split with references: its shards, its manifest and its counts grow together."""

    shards: ShardWriter
    tally: Tally = field(default_factory=Tally)
    manifest: list[Row] = field(default_factory=list)

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Add an image and the findings asked of it."""
        self.shards.add(row)
        self.tally.add(row, len(asked))
        entry = {name: row[name] for name in ("image_id", "study_id", "width", "height")}
        self.manifest.append({**entry, "view": VIEWS[row["view"]], "asked": list(asked)})


class FolderWriter:
    """Writes into `folder`, which must exist and be empty."""

    def __init__(
        self, folder: Path, benchmark: Benchmark, *, version: str, asks: Asks, embed: bool, max_shard_bytes: int
    ) -> None:
        self.folder, self.benchmark, self.version, self.asks, self.embed = folder, benchmark, version, asks, embed
        self.max_shard_bytes = max_shard_bytes
        self.features: Features = localization_features(benchmark.findings)
        self._tallies: dict[str, Tally] = {}
        self._configs: dict[str, dict[str, tuple[int, int]]] = {}
        self._splits: dict[str, dict[str, object]] = {}

    def shards(self, place: str, split: str) -> ShardWriter:
        """Shards of `split` in the subfolder `place`."""
        schema = self.features.arrow_schema
        return ShardWriter(self.folder / place, split, schema, max_shard_bytes=self.max_shard_bytes)

    def split(self, split: str) -> SplitWriter:
        """A split of the config `localization`."""
        return SplitWriter(self.shards("localization", split))

    def close_split(self, split: str, writer: SplitWriter, *, references: str = "public") -> None:
        """Finish a split with references."""
        self.close_shards("localization", split, writer.shards)
        self._tallies[split] = writer.tally
        self.add_manifest(split, writer.manifest, writer.tally.size, references=references)

    def close_shards(self, config: str, split: str, shards: ShardWriter) -> None:
        """Finish shards and list them under a config."""
        shards.close()
        self._configs.setdefault(config, {})[split] = (shards.n_rows, shards.n_bytes)

    def add_manifest(self, split: str, manifest: Sequence[Row], size: Mapping[str, int], *, references: str) -> None:
        """Write the public manifest of a split; its references need not be in this folder."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        text, whole = pa.string(), pa.int32()
        schema = pa.schema(
            {"image_id": text, "study_id": text, "view": text, "width": whole, "height": whole, "asked": pa.list_(text)}
        )
        path = self.folder / "manifest" / f"{split}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(manifest), schema=schema), path, compression="zstd")
        self._splits[split] = {**size, "references": references}

    def finish(self, *, synthetic: bool, is_private: bool = False) -> FolderInfo:
        """Write benchmark.json, the card and the checksums."""
        info = FolderInfo(
            benchmark=self.benchmark.name,
            version=self.version,
            synthetic=synthetic,
            asks=self.asks,
            grid=self.benchmark.grid,
            findings=self.benchmark.findings,
            splits=self._splits,
        )
        (self.folder / FOLDER_INFO).write_text(info.to_json(), encoding="utf-8")
        card = self._private_card() if is_private else self._public_card(synthetic)
        (self.folder / "README.md").write_text(card, encoding="utf-8")
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        sums = {path.relative_to(self.folder).as_posix(): file_sha256(path) for path in files}
        text = json.dumps({"algorithm": "sha256", "files": dict(sorted(sums.items()))}, indent=2) + "\n"
        (self.folder / CHECKSUMS).write_text(text, encoding="utf-8")
        return info

    def _config_list(self) -> list[Config]:
        return [Config(name, splits, default=name == "localization") for name, splits in self._configs.items()]

    def _private_card(self) -> str:
        n_images = sum(tally.n_images for tally in self._tallies.values())
        return private_card(self.benchmark, features=self.features, configs=self._config_list(), n_images=n_images)

    def _public_card(self, synthetic: bool) -> str:
        private = [size["n_images"] for size in self._splits.values() if size["references"] == "private"]
        return render_card(
            self.benchmark,
            self._tallies,
            version=self.version,
            features=self.features,
            configs=self._config_list(),
            embedded=self.embed,
            n_holdout=private[0] if private else None,  # type: ignore[arg-type]
            asks=self.asks,
            synthetic=synthetic,
        )
