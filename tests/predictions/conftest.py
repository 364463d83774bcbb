"""A tiny split, and a fixture that lints text against it.

Three images: one of CheXlocalize's size (height 2320, width 2828), one upright (2828 x 2320), one of 96 x 80.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.localization.lint import lint_predictions
from reveal_bench.kinds.localization.records import ImageManifest, ManifestRow
from reveal_bench.predictions import RULES, LintReport
from reveal_bench.predictions.limits import LintOptions

WIDE, TALL, SMALL = (f"patient{i}_study1_view1_frontal" for i in (1, 2, 3))


@pytest.fixture
def manifest() -> ImageManifest:
    rows = (
        ManifestRow(WIDE, "patient1_study1", "AP", 2828, 2320, ("Cardiomegaly", "Edema")),
        ManifestRow(TALL, "patient2_study1", "PA", 2320, 2828, ("Pleural Effusion",)),
        ManifestRow(SMALL, "patient3_study1", "AP", 80, 96, ("Airspace Opacity",)),
    )
    return ImageManifest("chexlocalize", "1.0", "test", 8, CHEXLOCALIZE_FINDINGS, {row.image_id: row for row in rows})


@pytest.fixture
def large_manifest() -> ImageManifest:
    """Return a manifest of forty images of 2320 x 2828 with one question each, Edema."""
    rows = (ManifestRow(f"p{i:02}", f"p{i:02}", "AP", 2828, 2320, ("Edema",)) for i in range(40))
    return ImageManifest("chexlocalize", "1.0", "test", 8, CHEXLOCALIZE_FINDINGS, {row.image_id: row for row in rows})


Lint = Callable[..., LintReport]


@pytest.fixture
def lint(manifest: ImageManifest, tmp_path: Path) -> Lint:
    """Return a function that lints text, bytes, an object or a list of objects (JSONL) and allows missing pairs."""

    def run(
        content: Any, *, allow_missing: bool = True, against: ImageManifest = manifest, **options: Any
    ) -> LintReport:
        if isinstance(content, dict):
            content = [content]
        if isinstance(content, list):
            content = "".join(json.dumps(line) + "\n" for line in content)
        path = tmp_path / "predictions"  # no suffix: the format follows from the content only
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        report = lint_predictions(path, against, LintOptions(allow_missing=allow_missing, **options))
        assert {problem.rule for problem in report.problems} <= set(RULES)
        return report

    return run


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@pytest.fixture
def prediction() -> dict[str, Any]:
    return {"image_id": WIDE, "finding": "Edema", "point": [10, 20]}
