"""Readers of the leaderboard on random input: metadata, settings, receipts, arrays, lint reports.

Each raises nothing but its documented error, and valid input is returned unchanged.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reveal_leaderboard.custody import Lint
from reveal_leaderboard.settings import SettingsError, load_settings
from reveal_leaderboard.store.metadata import KINDS, PROMPT_STYLES, MetadataError, read_metadata

from reveal_bench.exchange.receipts import ReceiptError, read_document, verify_receipt
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.findings.records import StudyManifest
from reveal_bench.kinds.localization.records import ImageManifest, ManifestRow
from reveal_bench.predictions import LintReport
from tests.leaderboard.conftest import METADATA

FOLDER = tempfile.TemporaryDirectory(prefix="fuzz-")
QUICK = settings(suppress_health_check=list(HealthCheck))
ROWS = {f"p{i}": ManifestRow(f"p{i}", "s", "AP", 64, 48, CHEXLOCALIZE_FINDINGS[:3]) for i in range(4)}
IMAGES = ImageManifest("chexlocalize", "1.0", "test", 8, CHEXLOCALIZE_FINDINGS, ROWS)
LABELS = ("COPD", "Edema")
STUDIES = StudyManifest("reveal-cxr", "1.0", "test", LABELS, ("s0", "s1", "s2"))

keys = st.sampled_from(["model", "name", "organization", "kind", "links", "code", "thresholds", "grid", "x", "\ud800"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(sorted(KINDS)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


def place(name: str, data: bytes) -> Path:
    path = Path(FOLDER.name) / name
    path.write_bytes(data)
    return path


# --- metadata


@QUICK
@given(st.dictionaries(keys, values), st.booleans())
def test_metadata_of_any_shape(changes: dict[str, Any], from_sound: bool) -> None:
    document = {**METADATA, **changes} if from_sound else changes
    with contextlib.suppress(MetadataError):
        json.dumps(read_metadata(json.dumps(document)).model_dump(), allow_nan=False).encode()


@QUICK
@given(st.text() | st.text(st.sampled_from('{}[]",:\\ 1eE+-.nulltrueNaN')))
def test_metadata_of_any_text(text: str) -> None:
    with pytest.raises(MetadataError, match=r"\S"):
        read_metadata(text)


names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9 ._+()/-]{0,60}[A-Za-z0-9]\Z")
prose = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=40)


@QUICK
@given(names, names, st.sampled_from(sorted(KINDS)), st.sampled_from(PROMPT_STYLES), prose)
def test_sound_metadata_come_back(model: str, team: str, kind: str, style: str, summary: str) -> None:
    sent = {
        "model": {"name": model}, "organization": team, "kind": kind, "prompt_style": style, "training_data": summary,
        "links": {},
    }  # fmt: skip
    assert read_metadata(json.dumps(sent)).model_dump(exclude_none=True) == sent


# --- settings

SOUND = load_settings().to_toml()
tables = st.sampled_from(["release", "quota", "exposure", "about", "benchmarks.reveal-cxr.quota", "benchmarks.x", "x"])
settings_keys = st.sampled_from(["min_cell", "resolution", "bands", "total", "per_day", "citation", "ladder_per", "x"])
toml_values = st.sampled_from(
    ["1", "0", "-1", "1e400", "nan", "inf", "true", '""', '"team"', "[]", "[30, 20]", "{}", "1979-05-27", "9" * 400]
)


@QUICK
@given(st.lists(st.tuples(tables, settings_keys, toml_values), max_size=4))
def test_settings_of_any_value(lines: list[tuple[str, str, str]]) -> None:
    text = "\n".join(f"[{table}]\n{key} = {value}" for table, key, value in lines)
    with contextlib.suppress(SettingsError):
        assert load_settings(place("settings.toml", text.encode())).of("reveal-cxr").quota.board_total >= 1


@QUICK
@given(st.binary(max_size=100) | st.text(max_size=100).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_settings_of_any_bytes(data: bytes) -> None:
    with contextlib.suppress(SettingsError):
        load_settings(place("settings.toml", data))


@QUICK
@given(st.integers(1, 1000), st.integers(1, 1000), st.text(st.characters(categories=["L", "P", "S"]), max_size=40))
def test_settings_come_back(total: int, per_day: int, citation: str) -> None:
    per_day = min(total, per_day)
    text = f"[quota]\ntotal = {total}\nper_day = {per_day}\nboard_total = 1000\n"
    text += f"[about]\ncitation = {json.dumps(citation, ensure_ascii=False)}\n"
    first = load_settings(place("one.toml", text.encode()))
    again = load_settings(place("two.toml", first.to_toml().encode()))
    assert again.document("reveal-cxr") == first.document("reveal-cxr")
    assert (again.of("x").quota.total, again.of("x").citation) == (total, citation)


# --- receipts

receipt_values = st.dictionaries(
    st.sampled_from(["receipt", "hash", "signature"]),
    values
    | st.fixed_dictionaries(
        {"schema": st.just("reveal-receipt/1")},
        optional=dict.fromkeys(["number", "public_key", "key_id", "succession", "released", "previous"], values),
    ),
)


@QUICK
@given(receipt_values)
def test_receipts_of_any_shape(document: dict[str, Any]) -> None:
    read = read_document(place("receipt.json", json.dumps(document).encode()))
    with pytest.raises(ReceiptError, match=r"\S"):
        verify_receipt(read)


@QUICK
@given(st.binary(max_size=60) | st.text(st.sampled_from('{}[]",: 1eNaN'), max_size=60).map(str.encode))
def test_receipts_of_any_bytes(data: bytes) -> None:
    with contextlib.suppress(ReceiptError):
        assert isinstance(read_document(place("receipt.json", data)), dict)


# --- lint reports, which come from a child that a stranger may have taken over

report_keys = st.sampled_from(
    ["schema", "file", "format", "ok", "n_entries", "n_predictions", "n_errors", "n_warnings", "allow_missing",
     "problems", "missing_pairs", "statistics"]
)  # fmt: skip
SOUND_REPORT = json.loads(LintReport("f", "csv", 1, (), (), (), {"a": 1}).to_json())


@QUICK
@given(st.dictionaries(report_keys, values, max_size=3), st.lists(report_keys, max_size=2))
def test_reports_of_any_shape(changes: dict[str, Any], left_out: list[str]) -> None:
    document = {key: value for key, value in {**SOUND_REPORT, **changes}.items() if key not in left_out}
    with contextlib.suppress(ValueError):
        assert Lint.model_validate_json(json.dumps(document)).n_errors == 0


@QUICK
@given(st.binary(max_size=60))
def test_reports_of_any_bytes(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Lint.model_validate_json(data)
