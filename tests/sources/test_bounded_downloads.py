"""Downloads that would exhaust a machine, or lead out of the folder that the user named.

Every case was seen to take gigabytes or minutes, or to be followed, before it was refused.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image

from reveal_bench.benchmarks import SOURCES
from reveal_bench.cli.build import inspect
from reveal_bench.kinds.images import PictureFile
from reveal_bench.phantom import LAYOUTS
from reveal_bench.saliency_maps.maps import MapFile, read_map
from reveal_bench.sources import SOURCE_MODULES, source
from reveal_bench.sources.mapping import read_mapping
from reveal_bench.sources.pictures import develop
from reveal_bench.sources.source import BuildError, DownloadProblems, Problem, read_json
from reveal_bench.tables import TableLimits, scan_table
from tests.conftest import draw_small

SOURCES_DRAWN = [name for name, (row, _) in SOURCES.items() if row.styles]
READ = (".csv", ".tsv", ".gz", ".json", ".jsonl", ".xlsx", ".parquet", ".yaml", ".zip", ".jpg", ".png")


def outcome(name, root):
    """What a source makes of a download: whether it may be built, and the pictures of its records."""
    module = SOURCE_MODULES[name]
    options = {"id_key": b"k" * 32} if "id_key" in module.options else {}
    try:
        inspection = module.inspect(root)
        records = module.read(root, pixels="withhold", keep_going=True, **options).splits
    except (BuildError, ValueError):
        return "refused"
    pictures = [record.picture for split in records.values() for record in split if hasattr(record, "picture")]
    counts = {name: n for name, n in inspection.counts.items() if name != "files set aside"}
    return "refused" if inspection.problems else (counts, sorted(one.source_path for one in pictures if one))


@pytest.mark.parametrize("name", SOURCES_DRAWN)
def test_no_link_out_of_a_download_is_followed(tmp_path, name):
    """A file that is a link to a place outside counts as missing, or stops the build."""
    root, outside = tmp_path / "download", tmp_path / "outside"
    draw_small(name, root, 3, seed=4)
    assert outcome(name, root) != "refused"
    kinds = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix in READ:
            kinds.setdefault(path.suffix, path)
    for path in kinds.values():
        shutil.move(path, outside)
        without = outcome(name, root)
        path.symlink_to(outside)
        assert outcome(name, root) in (without, "refused"), path
        path.unlink()
        shutil.move(outside, path)
    assert outcome(name, root) != "refused"


def test_a_download_that_is_a_link_itself_is_read(tmp_path):
    root = tmp_path / "download"
    LAYOUTS["nih-boxes"](root, 3, seed=4, long_side=64)
    (tmp_path / "link").symlink_to(root)
    assert outcome("nih-boxes", tmp_path / "link") == outcome("nih-boxes", root)


def test_folders_nested_without_end(tmp_path):
    LAYOUTS["nih-boxes"](tmp_path, 3, seed=4, long_side=64)
    before = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(1200):
            os.mkdir("d")
            os.chdir("d")
        with pytest.raises(ValueError, match="`root` must not contain folders or documents nested hundreds of"):
            SOURCE_MODULES["nih-boxes"].read(tmp_path, pixels="withhold", keep_going=False)
    finally:
        while Path.cwd() != tmp_path:  # shutil cannot remove so many
            os.chdir("..")
            os.rmdir("d")
        os.chdir(before)


def test_a_mapping_without_aliases(tmp_path):
    """Nine levels of nine aliases stand for 3.5 billion values."""
    path = tmp_path / "mapping.yaml"
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    path.write_text("\n".join(["a0: &a0 [x]", *levels, "findings: *a9"]))
    message = r"mapping.yaml: `file` must be YAML in UTF-8, got an alias \(\*\) must be written out in line 2, col"
    with pytest.raises(BuildError, match=message):
        read_mapping(path)
    path.write_bytes(b"a" * (1 << 20) + b"b")
    with pytest.raises(BuildError, match="got 1,048,577 bytes; at most 1,048,576 are read"):
        read_mapping(path)


def test_a_json_document_of_too_many_bytes(tmp_path):
    path = tmp_path / "boxes.json"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    problems = []
    assert read_json(path, dict, problems.append) == {}
    rule = "boxes.json: `file` must be a JSON object in UTF-8, got 67,108,865 bytes; at most 67,108,864 are read"
    assert list(map(str, problems)) == [rule]


def test_cells_of_all_rows_count_together(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n" + "1,2\n" * 3)
    problems = []
    assert scan_table(path, "t.csv", problems, limits=TableLimits(cells=8)) is not None
    assert problems == []
    assert scan_table(path, "t.csv", problems, limits=TableLimits(cells=7)) is None
    assert list(map(str, problems)) == ["t.csv:4: `cells` must be at most 7, got more"]


def test_reading_ends_after_many_problems(monkeypatch):
    monkeypatch.setattr(source, "MOST_PROBLEMS", 2)
    problem = Problem("t.csv", 2, "x", "must be", "no")
    for add in (lambda problems: problems.append(problem), lambda problems: problems.extend([problem])):
        problems = DownloadProblems([problem])
        add(problems)
        problems += []
        with pytest.raises(BuildError, match=r"3 problems:(.|\n)*reading stops after 2 problems"):
            add(problems)
    problems = DownloadProblems()
    with pytest.raises(BuildError, match="3 problems"):
        problems += [problem] * 3


def test_inspect_prints_the_first_fifty_problems(tmp_path, capsys):
    mapping = "boxes: boxes.csv\nimage: {column: image, matches: file}\nfinding: {column: finding}\n"
    mapping += "xyxy: [a, b, c, d]\ncoordinates: pixels\nfindings: [Nodule]\n"
    (tmp_path / "mapping.yaml").write_text(mapping)
    (tmp_path / "boxes.csv").write_text(
        "image,finding,a,b,c,d\n" + "".join(f"film,Nodel{i // 2},1,1,9,9\n" for i in range(120))
    )
    Image.new("L", (64, 64)).save(tmp_path / "film.png")
    with pytest.raises(typer.Exit):
        inspect(tmp_path)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 51
    assert lines[0].endswith("got 'Nodel0' (nearest: 'Nodule') (and in 1 more row)")
    assert lines[-1] == "error: ... and 10 more"


# --- pictures


def picture(tmp_path, data):
    path = tmp_path / "film"
    path.write_bytes(data)
    return PictureFile(path, "film", "film")


def test_a_jpeg_of_many_scans(tmp_path):
    """Every scan after the first takes as long to decode as the whole picture."""
    buffer = io.BytesIO()
    Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64)).save(buffer, "JPEG", progressive=True)
    data = buffer.getvalue()
    assert develop(picture(tmp_path, data)).data == data
    scan = data[data.rindex(b"\xff\xda") : -2]
    with pytest.raises(ValueError, match="a JPEG file of more than 100 scans"):
        develop(picture(tmp_path, data[:-2] + scan * 100 + data[-2:]))


def test_a_picture_of_many_pixels(tmp_path):
    """A PNG of 9,300 x 9,300 pixels, whose header alone is read."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", 9_300, 9_300, 8, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    with pytest.raises(ValueError, match="9300 x 9300 pixels; at most 85,000,000 are read"):
        develop(picture(tmp_path, data))


def test_a_picture_file_of_many_bytes(tmp_path):
    file = picture(tmp_path, b"\x89PNG")
    with file.path.open("r+b") as opened:
        opened.truncate((1 << 29) + 1)
    with pytest.raises(ValueError, match="536,870,913 bytes; at most 536,870,912 are read"):
        develop(file)


# --- heat maps


def npy(values, shape=None):
    buffer = io.BytesIO()
    np.save(buffer, values)
    data = buffer.getvalue()
    if shape is None:
        return data
    stated = str(values.shape).encode()
    return data.replace(stated + b", }" + b" " * (len(str(shape)) - len(stated)), str(shape).encode() + b", }")


def test_an_array_whose_header_claims_more_than_the_file_has(tmp_path):
    path = tmp_path / "a_Edema_map.npy"
    path.write_bytes(npy(np.zeros((2, 3)), (1_000_000, 1_000_000)))
    rule = r"the header claims the shape \(1000000, 1000000\) of float64, but the file has 176 bytes"
    with pytest.raises(ValueError, match=rule):
        read_map(MapFile(path, "Edema"))


def test_an_archive_that_unpacks_to_too_much(tmp_path, monkeypatch):
    from reveal_bench.saliency_maps import maps

    path = tmp_path / "a_Edema_map.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("map.npy", npy(np.zeros((300, 400), np.float32)))
        archive.writestr("other.npy", npy(np.zeros((3000, 400), np.float32)))
    monkeypatch.setattr(maps, "MOST_BYTES", 480_128)
    assert read_map(MapFile(path, "Edema")).values.shape == (300, 400)
    message = re.escape("a_Edema_map.npz: 4,800,128 bytes; at most 480,128 are read")
    with pytest.raises(ValueError, match=message):
        read_map(MapFile(path, "Edema", "other"))
