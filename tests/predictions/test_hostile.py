"""Files meant to hang, crash or exhaust a parser: each gets an ordinary report.

The inputs were seen to break pycocotools, pyarrow, pandas, polars, json or orjson.
"""

from __future__ import annotations

import gzip
import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from reveal_bench.masks import Rle, decode_mask, encode_mask
from reveal_bench.predictions import Limits, LintReport
from tests.predictions.conftest import parquet

WIDE, TALL, SMALL = (f"patient{i}_study1_view1_frontal" for i in (1, 2, 3))
MIB = 1 << 20


def _rules(report):
    return [problem.rule for problem in report.problems if problem.severity == "error"]


def _small_mask(counts, size=(96, 80)):
    return {"image_id": SMALL, "finding": "Airspace Opacity", "rle": {"size": list(size), "counts": counts}}


# --- run lengths; those that break other parsers are in tests/leaderboard/hostile/masks.py


def test_random_run_lengths_are_refused_or_fill_the_image(lint):
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(3000):
        characters = rng.integers(48, 112, rng.integers(1, 12))
        lines.append(_small_mask("".join(map(chr, characters)), size=(3, 4)))
    report = lint(lines)
    bad = {p.line for p in report.problems if p.rule.startswith("rle-") and p.field == "rle.counts"}
    sound = [line["rle"] for number, line in enumerate(lines, start=1) if number not in bad]
    assert 0 < len(sound) < 300
    for rle in sound:
        assert decode_mask(Rle((3, 4), rle["counts"])).shape == (3, 4)


# --- bombs; more are in tests/leaderboard/hostile, which also checks all rules in the answer


def _gzip_bomb(expanded_mib):
    """Return gzip members in sequence, each 64 MiB of spaces in 64 kB."""
    return gzip.compress(b" " * (64 * MIB)) * (expanded_mib // 64)


def test_gzip_bomb_is_refused_before_it_is_expanded(lint):
    bomb = _gzip_bomb(1024)
    tracemalloc.start()
    try:
        report = lint(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert _rules(report) == ["expanded-size"]
    assert peak < 150 * MIB  # `expansion` lets the 1 MB of the file become 100


@pytest.mark.parametrize(
    ("limit", "content", "rule"),
    [
        ({"file_bytes": 10}, b"x" * 11, "file-size"),
        ({"entries": 2}, b"{}\n{}\n{}\n{}", "entries"),
        ({"entries": 2}, b"image_id,finding,cell\na,b,c\na,b,c\na,b,c\n", "entries"),
        ({"entries": 2}, b"[{}, {}, {}]", "entries"),
        ({"entries": 1}, json.dumps({SMALL: {"Edema": [[1, 1]], "Cardiomegaly": [[1, 1]]}}).encode(), "entries"),
        ({"line_bytes": 50}, b'{"image_id": "' + b"a" * 50 + b'"}', "line-length"),
        ({"line_bytes": 50}, b"image_id,finding,cell\n" + b"a" * 51, "line-length"),
        ({"containers": 3}, b"[[], [], []]", "containers"),
        ({"columns": 3}, b"image_id,finding,cell,score\n", "columns"),
    ],
)
def test_limits(lint, limit, content, rule):
    report = lint(content, limits=replace(Limits(), **limit))
    assert rule in _rules(report)


def test_parquet_dictionary_bomb_is_refused_without_being_expanded(lint):
    """20,000 rows of the same 1 MB text: 20 GB when expanded, with a footer that claims 1 MB."""
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), pa.array(["0" * 1_000_000]))
    ids = pa.array(["a"] * 20_000)
    bomb = parquet(
        pa.table({"image_id": ids, "finding": ids, "size_h": [1] * 20_000, "size_w": [1] * 20_000, "counts": same})
    )
    assert len(bomb) < 100_000
    before = pa.default_memory_pool().max_memory()
    assert _rules(lint(bomb)) == ["expanded-size"]
    assert pa.default_memory_pool().max_memory() - before < 200 * MIB


def test_too_large_parquet_is_refused_by_its_footer(lint):
    table = pa.table({"image_id": ["a" * 1000] * 1000, "finding": ["b"] * 1000, "cell": ["A1"] * 1000})
    content = parquet(table, use_dictionary=False, compression="zstd")
    assert _rules(lint(content, limits=replace(Limits(), expanded_bytes=100_000))) == ["expanded-size"]


# --- reports are safe to print


def test_report_of_hostile_text_is_printable(lint):
    text = "\x1b[2J\u202e<script>\x00\ud83d"
    line = json.dumps({"image_id": text, "finding": text, "cell": text, text: 1, "score": text})
    report = lint(line, name=f"../{text}.jsonl")
    assert report.render().replace("\n", "").isprintable()
    json.loads(report.to_json())


# --- random damage


def _sound_files():
    mask = np.zeros((96, 80), bool)
    mask[10:40, 20:50] = True
    rle = {"size": [96, 80], "counts": encode_mask(mask).counts}
    lines = [
        {"image_id": WIDE, "finding": "Edema", "point": [10.5, 20], "score": 0.5},
        {"image_id": WIDE, "finding": "Cardiomegaly", "cell": "D5"},
        {"image_id": TALL, "finding": "Pleural Effusion", "box": [1, 2, 3, 4]},
        {"image_id": SMALL, "finding": "Airspace Opacity", "rle": rle},
    ]
    table = pa.table({"image_id": [WIDE, SMALL], "finding": ["Edema", "Airspace Opacity"], "x": [1.5, 2], "y": [3, 4]})
    jsonl = "".join(json.dumps(line) + "\n" for line in lines).encode()
    return {
        "jsonl": jsonl,
        "segmentations": json.dumps({SMALL: {"Airspace Opacity": rle, "Edema": rle}}).encode(),
        "points": json.dumps({SMALL: {"Airspace Opacity": [[1, 2], [3, 4]]}, WIDE: {"Edema": [[5, 6]]}}).encode(),
        "annotations": json.dumps({SMALL: {"img_size": [96, 80], "Edema": [[[1, 2], [30, 4], [5, 60]]]}}).encode(),
        "coco": json.dumps(
            [{"image_id": SMALL, "category_id": "Airspace Opacity", "bbox": [1, 2, 3, 4], "segmentation": rle}]
        ).encode(),
        "csv": b"image_id,finding,x,y,score\n" + f"{WIDE},Edema,1.5,2,0.5\n{SMALL},Airspace Opacity,3,4,\n".encode(),
        "parquet": parquet(table),
        "parquet-plain": parquet(table, use_dictionary=False, compression="none"),
        "gzip": gzip.compress(jsonl),
        "zstd": pa.compress(jsonl, "zstd", asbytes=True),
    }


def _damaged(data, rng):
    """Make one to four random edits: change a byte, or delete, duplicate or replace a section."""
    telling = [b"NaN", b"-1", b"1e999", b"null", b"[]", b"{}", b'"', b"\\", b"\x00", b"\xff", b",", b"\n", b"9" * 30]
    damaged = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, len(damaged) + 1))
        stop = min(len(damaged), at + int(rng.integers(0, 20)))
        edit = rng.integers(0, 4)
        if edit == 0 and at < len(damaged):
            damaged[at] = int(rng.integers(0, 256))
        elif edit == 1:
            del damaged[at:stop]
        elif edit == 2:
            damaged[at:at] = damaged[at:stop]
        else:
            damaged[at:stop] = telling[int(rng.integers(0, len(telling)))]
    return bytes(damaged)


@pytest.mark.parametrize("name", list(_sound_files()))
def test_damaged_files_get_a_clean_report(lint, name):
    sound = _sound_files()[name]
    assert lint(sound).ok, lint(sound).render()
    rng = np.random.default_rng(7)
    n_refused = 0
    for _ in range(300):
        report = lint(_damaged(sound, rng))
        assert isinstance(report, LintReport)
        assert not (report.predictions and not report.ok)
        assert report.render().replace("\n", "").isprintable()
        json.loads(report.to_json())
        n_refused += not report.ok
    assert n_refused > 100


def test_zigzag_contours_are_refused_before_they_are_filled(lint):
    zigzag = [[(k * 7) % 2828, 0 if k % 2 else 2319] for k in range(9000)]
    line = {"image_id": "patient1_study1_view1_frontal", "finding": "Edema", "polygons": [zigzag]}
    report = lint(line, limits=Limits(polygon_work=20_000_000))
    assert "polygon-work" in _rules(report)
