"""The curation folder: finished steps stay done, outdated files are detected, and no step is left half done."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.curation.folder import CurationError, CurationFolder
from tests.conftest import in_child


@pytest.fixture
def folder(tmp_path: Path) -> CurationFolder:
    return CurationFolder.create(tmp_path / "curation", name="Chest", seed=7)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    path = tmp_path / "reports.csv"
    path.write_text("a\n", encoding="utf-8")
    return path


def writing(text: str, name: str = "suggestions.parquet") -> Any:
    def work(scratch: Path) -> Mapping[str, Any]:
        (scratch / name).write_text(text, encoding="utf-8")
        return {"rows": len(text)}

    return work


def extract(folder: CurationFolder, reports: Path, text: str = "abc", *, redo: bool = False, **settings: Any) -> Any:
    return folder.run(
        "extract", settings, writing(text), files={"reports": reports}, writes=["suggestions.parquet"], redo=redo
    )


def sample(folder: CurationFolder, text: str = "s", *, redo: bool = False) -> Any:
    return folder.run(
        "sample",
        {},
        writing(text, "sample.parquet"),
        reads=["suggestions.parquet"],
        writes=["sample.parquet"],
        redo=redo,
    )


def test_a_step_is_recorded_and_its_working_folder_is_gone(folder: CurationFolder, reports: Path) -> None:
    record = extract(folder, reports, engine="rules")
    assert record.is_new
    assert record.counts == {"rows": 3}
    assert record.settings == {"engine": "rules"}
    assert folder.path("suggestions.parquet").read_text() == "abc"
    assert sorted(path.name for path in folder.root.iterdir()) == [".lock", "curation.json", "suggestions.parquet"]
    assert CurationFolder(folder.root).record("extract") == record


def test_the_same_step_again_does_nothing(folder: CurationFolder, reports: Path) -> None:
    extract(folder, reports, engine="rules")
    before = folder.path("curation.json").read_bytes()
    assert not extract(folder, reports, "other", engine="rules").is_new
    assert (folder.path("suggestions.parquet").read_text(), folder.path("curation.json").read_bytes()) == (
        "abc",
        before,
    )


def test_files_of_the_curation_folder_are_no_input(folder: CurationFolder, reports: Path) -> None:
    """`--images` may name a folder that contains the curation folder."""
    assert extract(folder, reports.parent).is_new
    assert not extract(folder, reports.parent).is_new


def test_other_settings_and_inputs_are_refused_until_told(folder: CurationFolder, reports: Path) -> None:
    extract(folder, reports, engine="rules")
    with pytest.raises(CurationError, match=r"already done, engine was 'rules', is 'model': do it again with --redo"):
        extract(folder, reports, engine="model")
    reports.write_text("b\n", encoding="utf-8")
    with pytest.raises(CurationError, match="reports has changed"):
        extract(folder, reports, engine="rules")
    assert extract(folder, reports, "new", engine="rules", redo=True).is_new
    assert folder.path("suggestions.parquet").read_text() == "new"


def test_what_is_to_be_redone_is_done_though_nothing_changed(folder: CurationFolder, reports: Path) -> None:
    extract(folder, reports)
    assert extract(folder, reports, "an endpoint answers again", redo=True).is_new
    assert folder.path("suggestions.parquet").read_text() == "an endpoint answers again"


def test_a_step_needs_the_one_before(folder: CurationFolder, reports: Path) -> None:
    with pytest.raises(CurationError, match="extract must be done first: reveal-bench curate extract"):
        sample(folder)
    extract(folder, reports)
    assert sample(folder).is_new


def test_what_was_made_from_something_else_is_stale(folder: CurationFolder, reports: Path) -> None:
    extract(folder, reports)
    sample(folder)
    extract(folder, reports, "anew", other=1, redo=True)
    states = {state.step: (state.status, state.why) for state in folder.states()}
    assert states["extract"] == ("done", "")
    assert states["sample"] == ("stale", "suggestions.parquet was made again")
    assert states["assign"] == ("open", "")
    with pytest.raises(CurationError, match=r"sample is stale .* --redo"):
        folder.need("sample")
    sample(folder, redo=True)
    assert folder.state("sample").status == "done"


def test_a_file_changed_by_hand_is_noticed_and_made_again(folder: CurationFolder, reports: Path) -> None:
    extract(folder, reports)
    folder.path("suggestions.parquet").write_text("touched", encoding="utf-8")
    assert folder.state("extract").why == "suggestions.parquet was changed after it was written"
    with pytest.raises(CurationError, match="extract is damaged"):
        sample(folder)
    assert extract(folder, reports).is_new
    folder.path("suggestions.parquet").unlink()
    assert folder.state("extract").why == "suggestions.parquet is missing"


def test_what_an_interrupted_step_left_is_found_by_the_same_step_only(folder: CurationFolder, reports: Path) -> None:
    seen = []

    def interrupted(scratch: Path) -> Mapping[str, Any]:
        seen.append((scratch / "half").is_file())
        (scratch / "half").write_text("", encoding="utf-8")
        (scratch / "suggestions.parquet").write_text("", encoding="utf-8")
        if len(seen) < 4:
            raise KeyboardInterrupt
        return {}

    for setting in (1, 1, 2, 2):
        with pytest.raises(KeyboardInterrupt) if len(seen) < 3 else nullcontext():
            folder.run("extract", {"n": setting}, interrupted, writes=["suggestions.parquet"])
    assert seen == [False, True, False, True]
    assert not folder.path(".extract").exists()


@pytest.mark.parametrize("when", ["suggestions.parquet", "quarantine.jsonl", "curation.json"])
def test_killed_at_any_file_and_run_again_gives_the_same(
    folder: CurationFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def work(scratch: Path) -> Mapping[str, Any]:
        (scratch / "suggestions.parquet").write_text("abc")
        (scratch / "quarantine.jsonl").write_text("q")
        return {"rows": 3}

    def step(folder: CurationFolder) -> None:
        folder.run("extract", {}, work, writes=["suggestions.parquet", "quarantine.jsonl"])

    def replace(old: Path, new: Path) -> None:
        if Path(new).name == when:
            os.kill(os.getpid(), signal.SIGKILL)
        real(old, new)

    whole, real = CurationFolder.create(tmp_path / "whole", name="Chest", seed=7), os.replace
    step(whole)
    monkeypatch.setattr("reveal_bench.curation.folder.os.replace", replace)
    assert in_child(lambda: step(folder)) == -signal.SIGKILL
    monkeypatch.undo()
    step(folder)
    for name in ("suggestions.parquet", "quarantine.jsonl", "curation.json"):
        assert folder.path(name).read_bytes() == whole.path(name).read_bytes()
    assert not folder.path(".extract").exists()


def test_nobody_else_reads_the_folder(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    for name in ("there", "new"):
        assert CurationFolder.create(tmp_path / name, name="Chest").root.stat().st_mode & 0o777 == 0o700


def test_a_folder_begins_empty_and_has_a_state(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("", encoding="utf-8")
    with pytest.raises(CurationError, match="new or empty folder"):
        CurationFolder.create(tmp_path, name="Chest")
    with pytest.raises(CurationError, match=r"is not a curation folder: it has no curation\.json"):
        CurationFolder(tmp_path)
    (tmp_path / "curation.json").write_text(json.dumps({"format": 99}), encoding="utf-8")
    with pytest.raises(CurationError, match="must have format 1, got 99"):
        CurationFolder(tmp_path)


@pytest.mark.parametrize("left", ["link", "notes/attempt.json"])
def test_a_failed_start_removes_only_its_own_files(tmp_path: Path, left: str) -> None:
    path = tmp_path / "new" / left

    def start() -> None:
        with CurationFolder.begun(tmp_path / "new", name="x"):
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(tmp_path) if left == "link" else path.write_text("{}")
            raise ValueError("a wrong table")

    with pytest.raises(ValueError, match="a wrong table"):
        start()
    assert path.exists()


def test_only_one_process_at_a_time(folder: CurationFolder, reports: Path) -> None:
    def nested(scratch: Path) -> Mapping[str, Any]:
        with pytest.raises(CurationError, match="another process is working in"):
            extract(CurationFolder(folder.root), reports)
        return writing("outer")(scratch)  # type: ignore[no-any-return]

    folder.run("extract", {}, nested, writes=["suggestions.parquet"])
    assert folder.path("suggestions.parquet").read_text() == "outer"


def test_random_numbers_depend_on_seed_and_step_alone(folder: CurationFolder, tmp_path: Path) -> None:
    same = CurationFolder.create(tmp_path / "same", name="Another", seed=7)
    other = CurationFolder.create(tmp_path / "other", name="Chest", seed=8)
    first = folder.rng("sample").integers(1 << 60, size=3).tolist()
    assert same.rng("sample").integers(1 << 60, size=3).tolist() == first
    assert other.rng("sample").integers(1 << 60, size=3).tolist() != first
    assert folder.rng("split").integers(1 << 60, size=3).tolist() != first
