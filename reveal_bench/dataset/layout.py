"""Writers of the files of a dataset folder: shards, tables, manifests, card, Croissant and checksums.

:mod:`reveal_bench.dataset.build` describes the layout. Rows are collected in row groups of at most 100 rows and about
32 MB, because the Hub's viewer reads one group at a time and a writer keeps one group in memory. Row groups are
collected in shards of about 500 MB. Names of shards contain the total number of shards, so shards are named after the
last row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reveal_bench.benchmarks import Asks, Benchmark
from reveal_bench.dataset.card import Config, private_card, render_card, render_eval_yaml
from reveal_bench.dataset.citation import CITATION, ZENODO, render_citation, render_zenodo
from reveal_bench.dataset.croissant import render_croissant
from reveal_bench.dataset.preview import PREVIEW, preview_features, preview_rows
from reveal_bench.files import FILMS, FOLDER_INFO, file_sha256
from reveal_bench.findings import FindingGroups
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.finding_groups import groups_by_prevalence
from reveal_bench.kinds.folder import FolderInfo
from reveal_bench.kinds.kind import AnyKind
from reveal_bench.kinds.rows import Row, parquet_schema
from reveal_bench.kinds.split_counts import Tally

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Features

GROUP_ROWS = 100
GROUP_BYTES = 32 << 20
SHARD_BYTES = 500 << 20


class ShardWriter:
    """Writer of ``<folder>/<split>-00000-of-000NN.parquet``.

    Parameters
    ----------
    folder : Path
        Folder of the shards; created if it is missing.
    schema : pyarrow schema of the rows
    max_shard_bytes : size at which a shard is closed after a row group

    Attributes
    ----------
    n_rows, n_bytes : number of rows added so far, and their size in Arrow memory
    sums : dict from shard to sha256, for shards whose sha256 is known without reading them
    """

    def __init__(self, folder: Path, split: str, schema: pa.Schema, *, max_shard_bytes: int = SHARD_BYTES) -> None:
        self.folder, self.split, self.schema, self.max_shard_bytes = folder, split, schema, max_shard_bytes
        self.n_rows = self.n_bytes = 0
        self.sums: dict[Path, str] = {}
        self._rows: list[Row] = []
        self._rows_bytes = self._shard_bytes = 0
        self._parts: list[Path] = []
        self._writer: pq.ParquetWriter | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, row: Row) -> None:
        """Add one row."""
        self._rows.append(row)
        self._rows_bytes += self._size_of(row)
        self.n_rows += 1
        if len(self._rows) >= GROUP_ROWS or self._rows_bytes >= GROUP_BYTES:
            self._write_group()

    def close(self) -> list[Path]:
        """Write the remaining rows, name the shards, and return their paths."""
        if self._rows or not self._parts:
            self._write_group()
        self._close_shard()
        total = len(self._parts)
        shards = [self.folder / f"{self.split}-{i:05d}-of-{total:05d}.parquet" for i in range(total)]
        for part, shard in zip(self._parts, shards, strict=True):
            part.rename(shard)
        return shards

    def _size_of(self, row: Row) -> int:
        return row_bytes(row)

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pylist(self._rows, schema=self.schema)
        if self._writer is None:
            part = self.folder / f".{self.split}-{len(self._parts):05d}.part"
            self._parts.append(part)
            self._writer = pq.ParquetWriter(part, self.schema, compression="zstd", write_page_index=True)
        self._writer.write_table(table, row_group_size=GROUP_ROWS)
        self.n_bytes += table.nbytes
        self._shard_bytes += self._rows_bytes
        self._rows, self._rows_bytes = [], 0
        if self._shard_bytes >= self.max_shard_bytes:
            self._close_shard()

    def _close_shard(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._shard_bytes = None, 0


def row_bytes(value: Any) -> int:
    """Return the approximate size of a row in memory, in bytes, to limit row groups and shards."""
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, dict):
        return sum(row_bytes(inner) for inner in value.values())
    if isinstance(value, list):
        if value and isinstance(value[0], int | float):
            return 8 * len(value)
        if value and isinstance(value[0], list) and value[0] and isinstance(value[0][0], int | float):
            return 8 * sum(map(len, value))  # contours, with thousands of points per row
        return sum(row_bytes(inner) for inner in value)
    return 8


CHECKSUMS = "CHECKSUMS.json"


@dataclass
class SplitWriter:
    """Writer of a split with references, which adds each row to the shards, the manifest and the counts."""

    kind: AnyKind
    shards: ShardWriter
    tally: Tally
    manifest: list[Row] = field(default_factory=list)

    def add(self, row: Row, asked: Sequence[str]) -> None:
        """Add a row and the findings that are asked for it."""
        self.shards.add(row)
        self.tally.add(row, asked)
        self.manifest.append(self.kind.questions.manifest_row(row, asked))


class FolderWriter:
    """Writer of a dataset folder; `folder` must exist and be empty, `writer` makes the writers of shards."""

    def __init__(
        self,
        folder: Path,
        benchmark: Benchmark,
        *,
        version: str,
        asks: Asks,
        embed: bool,
        max_shard_bytes: int,
        writer: Callable[..., ShardWriter] = ShardWriter,
    ) -> None:
        self.folder, self.benchmark, self.version, self.asks, self.embed = folder, benchmark, version, asks, embed
        self.max_shard_bytes, self._writer = max_shard_bytes, writer
        self.kind = KINDS[benchmark.kind]
        self.features: Features = self.kind.table.features(benchmark)
        self._tallies: dict[str, Tally] = {}
        self._sizes: dict[str, dict[str, tuple[int, int]]] = {}
        self._features: dict[str, Features] = {}
        self._splits: dict[str, dict[str, object]] = {}
        self._known_sums: dict[Path, str] = {}

    def shards(self, config: str, split: str, features: Features) -> ShardWriter:
        """Return a writer of the shards of a config's split.

        :meth:`close_shards` must finish the shards, so that the card lists them.
        """
        schema = parquet_schema(features)
        return self._writer(self.folder / config, split, schema, max_shard_bytes=self.max_shard_bytes)

    def close_shards(self, config: str, split: str, shards: ShardWriter, features: Features) -> None:
        """Finish the shards of a config's split, and list them for the card."""
        shards.close()
        self._known_sums |= shards.sums
        self._features[config] = features
        self._sizes.setdefault(config, {})[split] = (shards.n_rows, shards.n_bytes)

    def split(self, split: str) -> SplitWriter:
        """Return a writer of a split of the main config."""
        return SplitWriter(self.kind, self.shards(self.kind.config, split, self.features), self.kind.table.tally())

    def close_split(self, split: str, writer: SplitWriter, *, references: str = "public") -> None:
        """Finish a split with references, and write its manifest."""
        self.close_shards(self.kind.config, split, writer.shards, self.features)
        self._tallies[split] = writer.tally
        self.add_manifest(split, writer.manifest, writer.tally.size, references=references)

    def add_table(self, config: str, split: str, features: Features, rows: Iterable[Row]) -> None:
        """Write a small table as a split of a separate config."""
        folder, schema = self.folder / config, parquet_schema(features)
        shards = ShardWriter(folder, split, schema, max_shard_bytes=self.max_shard_bytes)
        tally = self._tallies.get(split)
        for row in rows:
            shards.add(row)
            if tally is not None:
                tally.add_extra(config, row)
        self.close_shards(config, split, shards, features)

    def add_manifest(self, split: str, manifest: Sequence[Row], size: Mapping[str, int], *, references: str) -> None:
        """Write the manifest of a split, whose references may be in another folder."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.folder / "manifest" / f"{split}.parquet"
        path.parent.mkdir(exist_ok=True)
        table = pa.Table.from_pylist(list(manifest), schema=self.kind.questions.manifest_schema())
        pq.write_table(table, path, compression="zstd")
        self._splits[split] = {**size, "references": references}

    def finish(self, *, synthetic: bool, is_private: bool = False, films: str = "") -> FolderInfo:
        """Write previews, benchmark.json, checksums and card and, for a public folder, all other descriptions.

        Parameters
        ----------
        films : content of ``manifest/films.json``; without one, the file is not written
        """
        info = FolderInfo(
            benchmark=self.benchmark.name,
            version=self.version,
            synthetic=synthetic,
            asks=self.asks,
            grid=self.benchmark.grid,
            findings=self.benchmark.findings,
            splits=self._splits,
            finding_groups={} if is_private else self._finding_groups(),
            not_asked=self.benchmark.not_asked,
        )
        self._write(FOLDER_INFO, info.to_json())
        if films:
            self._write(FILMS, films)
        if self.embed:
            self._add_previews()
        if is_private:
            self._write("README.md", self._private_card())
            sums = self._sums()
        else:
            self._write("README.md", self._public_card(synthetic))
            if (citation := render_citation(self.benchmark, version=self.version, synthetic=synthetic)) is not None:
                self._write(CITATION, citation)
            if (text := render_zenodo(self.benchmark, version=self.version, synthetic=synthetic)) is not None:
                self._write(ZENODO, text)
            self._write("eval.yaml", render_eval_yaml(self.benchmark, self._configs(), version=self.version))
            sums = self._sums()
            sized = {name: (sha256, (self.folder / name).stat().st_size) for name, sha256 in sums.items()}
            croissant = render_croissant(
                self.benchmark, self._configs(), version=self.version, synthetic=synthetic, files=sized
            )
            self._write("croissant.json", croissant)
            sums["croissant.json"] = file_sha256(self.folder / "croissant.json")
        listing = {"algorithm": "sha256", "files": dict(sorted(sums.items()))}
        self._write(CHECKSUMS, json.dumps(listing, indent=2) + "\n")
        return info

    def _finding_groups(self) -> FindingGroups:
        """Return the benchmark's groups of findings; prevalence is that in all splits with public references."""
        groups = self.benchmark.finding_groups
        if not isinstance(groups, str):
            return groups
        public = [self._tallies[split] for split, entry in self._splits.items() if entry["references"] == "public"]
        counts = {name: sum(tally.positives[i] for tally in public) for i, name in enumerate(self.benchmark.findings)}
        return groups_by_prevalence(counts, sum(tally.n_rows for tally in public))

    def _add_previews(self) -> None:
        """Write the config `preview` for the splits with public references."""
        for split, entry in self._splits.items():
            if entry["references"] == "public":
                rows = list(preview_rows(self.folder, split, self.kind))
                if rows:
                    self.add_table(PREVIEW, split, preview_features(self.kind), rows)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def _sums(self) -> dict[str, str]:
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        sums = {path: self._known_sums.get(path) or file_sha256(path) for path in files}
        return {path.relative_to(self.folder).as_posix(): sha256 for path, sha256 in sums.items()}

    def _configs(self) -> list[Config]:
        return [
            Config(name, splits, self._features[name], default=name == self.kind.config)
            for name, splits in self._sizes.items()
        ]

    def _private_card(self) -> str:
        n_rows = sum(rows for rows, _ in self._sizes[self.kind.config].values())
        return private_card(self.benchmark, configs=self._configs(), n_rows=n_rows)

    def _public_card(self, synthetic: bool) -> str:
        private = [size[self.kind.counted] for size in self._splits.values() if size["references"] == "private"]
        return render_card(
            self.benchmark,
            self._tallies,
            version=self.version,
            features=self.features,
            configs=self._configs(),
            embedded=self.embed,
            n_holdout=private[0] if private else None,  # type: ignore[arg-type]
            asks=self.asks,
            synthetic=synthetic,
        )
