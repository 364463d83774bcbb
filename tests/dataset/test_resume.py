"""A build that is killed, interrupted or refused resumes where it stopped, and produces the same bytes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset import row_pool as spool
from reveal_bench.dataset.build import build_folder
from reveal_bench.dataset.build_log import BuildLog
from reveal_bench.dataset.validate import validate_folder
from reveal_bench.files import FILMS
from reveal_bench.kinds.findings.records import StudyRecord
from reveal_bench.kinds.images import PictureFile, StudyImage
from reveal_bench.sources.source import BuildError
from tests.conftest import in_child

N_STUDIES = 110


def write_pictures(root: Path, n: int) -> Path:
    root.mkdir()
    rng = np.random.default_rng(1)
    for i in range(n):
        Image.fromarray(rng.integers(0, 256, (24, 20), np.uint8)).save(root / f"{i:03d}.png")
    return root


def studies(pictures: Path) -> list[StudyRecord]:
    """A study of one image per picture, two studies to a patient."""
    labels = BENCHMARKS["reveal-cxr"].findings
    records = []
    for i, path in enumerate(sorted(pictures.iterdir())):
        image = StudyImage(f"image-{i}", "AP", 20, 24, picture=PictureFile(path, f"image-{i}.png", path.name))
        records.append(StudyRecord(f"study-{i}", f"patient-{i // 2}", (labels[i % 12],), "two_of_three", (image,)))
    return records


def tree(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def build(pictures: Path, out: Path, **options):
    return build_folder(
        {"test": studies(pictures)},
        out,
        BENCHMARKS["reveal-cxr"],
        holdout=out.with_name(f"{out.name}-private"),
        holdout_split="test",
        synthetic=True,
        **options,
    )


def run_until(pictures: Path, out: Path, *, record: int, by: signal.Signals) -> int:
    """Build in a separate process that sends itself the signal `by` after a record; return its exit code."""

    def stop(split: str, done: int, total: int, failed: int) -> None:
        if done == record:
            os.kill(os.getpid(), by)

    def build_until() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
        try:
            build(pictures, out, workers=2, progress=stop)
        except KeyboardInterrupt:  # ends the process as the interpreter would end it
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)

    return in_child(build_until)


@pytest.mark.processes
def test_a_killed_build_goes_on_and_gives_the_same_bytes(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", N_STUDIES)
    build(pictures, tmp_path / "whole", workers=1)
    out = tmp_path / "out"
    assert run_until(pictures, out, record=45, by=signal.SIGKILL) == -signal.SIGKILL
    assert not out.exists()
    # parts are of 32 records: after 45 of them one is complete, after 80 two
    assert run_until(pictures, out, record=80, by=signal.SIGKILL) == -signal.SIGKILL
    log = BuildLog()
    build(pictures, out, log=log)
    assert log.resumed == 64
    assert tree(out) == tree(tmp_path / "whole")
    assert tree(tmp_path / "out-private") == tree(tmp_path / "whole-private")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"pictures", "whole", "whole-private", "out", "out-private"}
    assert validate_folder(out, holdout=tmp_path / "out-private", load=False) == []


@pytest.mark.processes
def test_an_interrupted_build_goes_on(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", 80)
    assert run_until(pictures, tmp_path / "out", record=70, by=signal.SIGINT) == -signal.SIGINT
    log = BuildLog()
    build(pictures, tmp_path / "out", log=log)
    assert log.resumed == 64


def test_changed_files_and_records_are_made_again(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", 100)
    names = sorted(pictures.iterdir())
    for i in (40, 70):
        names[i].rename(tmp_path / f"away{i}.png")
        names[i].write_bytes(b"broken")
    with pytest.raises(BuildError, match=r"2 problems:\n040\.png:study-40: `picture` must be readable, got not a pic"):
        build(pictures, tmp_path / "out")
    names[40].unlink()
    (tmp_path / "away40.png").rename(names[40])
    log = BuildLog()
    build(pictures, tmp_path / "out", keep_going=True, log=log)
    # parts 0 and 3 are as they were; 1 has the mended picture, 2 the one that is still broken
    assert log.resumed == 32 + 4
    assert [problem.file for problem in log.left_out] == ["070.png"]
    record = json.loads((tmp_path / "out" / FILMS).read_text())
    assert record["left_out"] == {"unreadable picture": 1}
    build_folder(
        {"test": [record for record in studies(pictures) if record.study_id != "study-70"]},
        tmp_path / "fresh",
        BENCHMARKS["reveal-cxr"],
        holdout=tmp_path / "fresh-private",
        holdout_split="test",
        synthetic=True,
    )
    differ = tree(tmp_path / "out").items() ^ tree(tmp_path / "fresh").items()
    assert {name for name, _ in differ} == {FILMS, "CHECKSUMS.json", "croissant.json"}


def test_other_options_start_over(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", 40)
    sorted(pictures.iterdir())[39].write_bytes(b"broken")
    with pytest.raises(BuildError):
        build(pictures, tmp_path / "out")
    log = BuildLog()
    build(pictures, tmp_path / "out", pixels="withhold", keep_going=True, log=log)
    assert log.resumed == 0


def test_the_number_of_workers_does_not_matter(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", 40)
    for workers in (1, 3):
        build(pictures, tmp_path / f"with{workers}", workers=workers)
    assert tree(tmp_path / "with1") == tree(tmp_path / "with3")


def test_two_builds_of_one_target_exclude_each_other(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", 4)
    (tmp_path / ".out.building").mkdir()
    with (tmp_path / ".out.building" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="out is being built by another process"):
            build(pictures, tmp_path / "out")
    build(pictures, tmp_path / "out")
    assert (tmp_path / "out" / "README.md").exists()


def test_parts_of_the_holdout_are_in_the_private_workplace_alone(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", 40)
    sorted(pictures.iterdir())[39].write_bytes(b"broken")
    with pytest.raises(BuildError):
        build(pictures, tmp_path / "out")
    assert not (tmp_path / ".out.building").exists()
    private = tmp_path / ".out-private.building"
    assert sorted(path.name for path in (private / "parts" / "test").glob("*.json")) == ["000000.json", "000001.json"]
    assert private.stat().st_mode & 0o777 == 0o700


def stopped_build(pictures: Path, out: Path, *, record: int = 70, **options: object) -> None:
    """A build in this process that stops after a record; parts of 32 records remain."""

    def stop(split: str, done: int, total: int, failed: int) -> None:
        if done == record:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(pictures, out, progress=stop, **options)


@pytest.mark.parametrize("damage", ["cut", "altered", "gone"])
def test_damaged_parts_are_made_again(tmp_path, damage):
    pictures = write_pictures(tmp_path / "pictures", 80)
    build(pictures, tmp_path / "whole")
    stopped_build(pictures, tmp_path / "out")
    part = tmp_path / ".out-private.building" / "parts" / "test" / "000001.parquet"
    data = part.read_bytes()
    if damage == "gone":
        part.unlink()
    else:
        part.write_bytes(data[:100] if damage == "cut" else data.replace(b"study-", b"STUDY-"))
    log = BuildLog()
    build(pictures, tmp_path / "out", log=log)
    assert log.resumed == 32
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_part_that_is_being_replaced_is_not_resumed(tmp_path, monkeypatch):
    """Killed between the rows of other labels and their index, then the labels are changed back."""
    pictures = write_pictures(tmp_path / "pictures", 40)
    build(pictures, tmp_path / "whole")
    stopped_build(pictures, tmp_path / "out", record=40)
    changed = [replace(record, labels=("Pneumothorax",)) for record in studies(pictures)]
    monkeypatch.setattr(spool, "write_whole", killed_at_the_index(spool.write_whole))
    with pytest.raises(KeyboardInterrupt):
        build_folder(
            {"test": changed},
            tmp_path / "out",
            BENCHMARKS["reveal-cxr"],
            holdout=tmp_path / "out-private",
            synthetic=True,
        )
    monkeypatch.undo()
    build(pictures, tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert tree(tmp_path / "out-private") == tree(tmp_path / "whole-private")


def test_dropped_parts_lose_their_index_first(tmp_path, monkeypatch):
    """Killed while it drops parts, a build leaves no index of a table that is gone."""
    endings = ("-side.parquet", ".json", ".parquet")
    for number in (0, 1):
        for ending in endings:
            (tmp_path / f"{number:06d}{ending}").touch()
    parts = spool.Spool(tmp_path, None, None, str)
    removed = []
    monkeypatch.setattr(Path, "unlink", lambda path: removed.append(path.name))
    parts._drop_from(1)
    assert (removed[0], sorted(removed)) == ("000001.json", [f"000001{ending}" for ending in endings])


def killed_at_the_index(write):
    def write_rows(path: Path, data: object, **options: object) -> None:
        if path.suffix == ".json":
            raise KeyboardInterrupt
        write(path, data, **options)

    return write_rows


def test_swapped_files_of_one_size_and_time_are_seen(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", 40)
    for i in (3, 4):  # bmp-like: of one size whatever is in them
        Image.fromarray(np.full((24, 20), i, np.uint8)).save(pictures / f"{i:03d}.png", compress_level=0)
        os.utime(pictures / f"{i:03d}.png", (1, 1))
    stopped_build(pictures, tmp_path / "out", record=40)
    (pictures / "003.png").rename(tmp_path / "x")
    (pictures / "004.png").rename(pictures / "003.png")
    (tmp_path / "x").rename(pictures / "004.png")
    build(pictures, tmp_path / "out")
    build(pictures, tmp_path / "whole")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


@pytest.mark.parametrize("n_renames", [0, 1, 2, 3])
@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_at_the_renames(tmp_path, monkeypatch, n_renames, overwrite):
    """Whatever was renamed when the process died, the same command gives both folders, and leaves nothing else."""
    pictures = write_pictures(tmp_path / "pictures", 6)
    build(pictures, tmp_path / "whole")
    if overwrite:
        build(pictures, tmp_path / "out", version="0.9.0")
    renamed = []

    def rename(path: Path, target: Path) -> Path:
        if path.name in ("folder", "out", "out-private"):
            if len(renamed) == n_renames:
                os._exit(9)
            renamed.append(path)
        os.rename(path, target)
        return Path(target)

    def build_until() -> None:
        monkeypatch.setattr(Path, "rename", rename)
        build(pictures, tmp_path / "out", overwrite=overwrite)

    is_killed = n_renames < (4 if overwrite else 2)
    assert in_child(build_until) == (9 if is_killed else 0)
    if is_killed:
        build(pictures, tmp_path / "out", overwrite=overwrite)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert tree(tmp_path / "out-private") == tree(tmp_path / "whole-private")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"pictures", "whole", "whole-private", "out", "out-private"}


def test_a_failed_rename_puts_everything_back(tmp_path, monkeypatch):
    pictures = write_pictures(tmp_path / "pictures", 6)
    build(pictures, tmp_path / "out", version="0.9.0")
    before = {name: tree(tmp_path / name) for name in ("out", "out-private")}
    original = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if Path(target).name == "out" and path.name == "folder":
            raise OSError("disk trouble")
        return original(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(OSError, match="disk trouble"):
        build(pictures, tmp_path / "out", overwrite=True)
    assert {name: tree(tmp_path / name) for name in before} == before


def test_killed_while_clearing_up_the_finished_folders_stand(tmp_path, monkeypatch):
    """A later build may not delete complete folders whose parts were still being removed."""
    pictures = write_pictures(tmp_path / "pictures", 6)
    build(pictures, tmp_path / "out", version="0.9.0")
    original = shutil.rmtree

    def killed(path: Path, **options: object) -> None:
        if Path(path).name.endswith(".building"):
            raise KeyboardInterrupt
        original(path, **options)

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        build(pictures, tmp_path / "out", overwrite=True)
    monkeypatch.undo()
    done = {name: tree(tmp_path / name) for name in ("out", "out-private")}
    with pytest.raises(ValueError, match="`out` must be a new or empty folder unless `overwrite` is set"):
        build(pictures, tmp_path / "out", seed=6)
    assert {name: tree(tmp_path / name) for name in done} == done
    build(pictures, tmp_path / "out", overwrite=True)
    assert {name: tree(tmp_path / name) for name in done} == done


def test_link_is_not_a_working_folder(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", 4)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".out-private.building").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"is a link, a file or another user's folder\. Remove it"):
        build(pictures, tmp_path / "out")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.processes
def test_a_worker_that_dies_costs_no_other_record(tmp_path):
    pictures = write_pictures(tmp_path / "pictures", 40)
    build(pictures, tmp_path / "whole")

    def kill_a_worker(split: str, done: int, total: int, failed: int) -> None:
        if done == 5:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    log = BuildLog()
    build(pictures, tmp_path / "out", workers=2, progress=kill_a_worker, log=log)
    assert log.left_out == []
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


class Fatal(str):
    """An identifier that ends every process that it is sent to."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (9,)


@pytest.mark.processes
def test_a_record_that_ends_its_workers_is_a_problem_as_any_other(tmp_path):
    records = studies(write_pictures(tmp_path / "pictures", 12))
    records[5] = replace(records[5], study_id=Fatal("study-5"))
    log = BuildLog()
    build_folder(
        {"test": records}, tmp_path / "out", BENCHMARKS["reveal-cxr"], holdout=tmp_path / "out-private", workers=2,
        keep_going=True, synthetic=True, log=log,
    )  # fmt: skip
    assert [(problem.file, problem.rule) for problem in log.left_out] == [("005.png", "must be readable")]
    assert "on which the decoding process died" in log.left_out[0].value
