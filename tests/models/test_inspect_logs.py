"""Damaged logs, logs of other tasks or of several runs, and the choice among several answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reveal_bench.models.endpoints import reason_text
from reveal_bench.models.inspect_logs import import_logs, read_log_folder, token_counts
from reveal_bench.models.questions import AskSettings
from reveal_bench.models.running import ModelChoice, run_model
from tests.models.conftest import Truth, playing

Ask = Callable[..., Path]


@pytest.fixture(scope="module")
def logs(films: Path, truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Logs of small runs: a question that failed and then was answered, other settings, another model."""
    root = tmp_path_factory.mktemp("logs")
    first = truth.questions[0][0]
    settings = AskSettings()
    with playing(truth, faults={first: ["400"] * 2}) as (model, _):
        choice = ModelChoice("played", model.url)
        run_model(films, "test", root / "a", settings, choice, limit=2)
        run_model(films, "test", root / "a", settings, choice, limit=3, ask_again=True)
        run_model(films, "test", root / "cot", replace(settings, style="chain-of-thought"), choice, limit=1)
        run_model(films, "test", root / "other", settings, replace(choice, model="other"), limit=1)
        run_model(films, "test", root / "warm", settings, replace(choice, temperature=1.0), limit=1)
    return {name: root / name / "logs" for name in ("a", "cot", "other", "warm")}


def test_the_answer_counts_and_not_the_failure_before_it(logs: dict[str, Path], truth: Truth) -> None:
    files = sorted(logs["a"].iterdir(), key=lambda path: path.stat().st_mtime_ns)  # names tell whole seconds only
    assert len(files) == 2
    _, before = import_logs(files[:1])
    assert [exchange.status for exchange in before] == ["failed", "answered"]
    for order in (files, files[::-1], [logs["a"]], [logs["a"], *files]):
        info, exchanges = import_logs(order)
        assert [exchange.status for exchange in exchanges] == ["answered"] * 3
        assert {exchange.question for exchange in exchanges} == {question for question, _, _ in truth.questions[:3]}
        assert (info.n_asked, info.limit) == (3, 3)


@pytest.mark.parametrize(
    ("other", "difference"),
    [  # logs begun in the same second come in either order
        ("cot", "settings .*(zero-shot.*chain-of-thought|chain-of-thought.*zero-shot)"),
        ("other", "model (played and other|other and played)"),
        ("warm", "parameters"),
    ],
)
def test_runs_are_not_mixed(logs: dict[str, Path], other: str, difference: str) -> None:
    with pytest.raises(ValueError, match=f"must be from one run: .* differ in {difference}"):
        import_logs([logs["a"], logs[other]])


def test_damaged_logs_are_named(logs: dict[str, Path], tmp_path: Path) -> None:
    whole = next(logs["other"].iterdir()).read_bytes()
    for name, data in {"empty": b"", "cut": whole[: len(whole) // 2], "words": b"no zip at all"}.items():
        path = tmp_path / f"{name}.eval"
        path.write_bytes(data)
        with pytest.raises(ValueError, match=rf"{name}\.eval is damaged, or not a log of inspect_ai"):
            import_logs([path])
    with pytest.raises(ValueError, match=r"\.eval is damaged.*; delete this file to ask its questions again"):
        read_log_folder(tmp_path)
    broken = bytearray(whole)
    at = whole.index(b"samples/") + 120
    broken[at : at + 40] = bytes(40)
    (tmp_path / "inside.eval").write_bytes(broken)
    with pytest.raises(ValueError, match=r"inside\.eval is damaged"):
        import_logs([tmp_path / "inside.eval"])


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must contain logs \(\.eval\), got none in"):
        import_logs([tmp_path])
    with pytest.raises(ValueError, match="`paths` must exist"):
        import_logs([tmp_path / "nowhere"])
    assert read_log_folder(tmp_path / "nowhere") == {}


def test_a_log_of_another_task_is_refused(tmp_path: Path) -> None:
    import inspect_ai
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def reply(*_: Any) -> ModelOutput:
        output = ModelOutput.from_content("mock", "yes")
        output.usage = ModelUsage()
        return output

    task = inspect_ai.Task(dataset=[Sample("?")], name="sums")
    model = get_model("mockllm/model", custom_outputs=reply, memoize=False)
    inspect_ai.eval(
        task, model, log_dir=str(tmp_path), display="none", log_realtime=False, ctl_server=False, log_level="critical"
    )
    with pytest.raises(ValueError, match="is the log of another task, 'sums'"):
        import_logs([tmp_path])


def test_no_part_of_a_key_is_left_where_a_reason_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVEAL_MODEL_KEY", "s3cret-of-an-endpoint")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "s3cret-of-a-provider")
    for length in range(970, 1001):
        reason = reason_text("x" * length + "s3cret-of-an-endpoint s3cret-of-a-provider")
        assert "s3c" not in reason
        assert len(reason) <= 1000


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"input_tokens": 8, "input_tokens_cache_read": 2, "output_tokens": 3}, (10, 2, 3)),
        ({"input_tokens": 5, "input_tokens_cache_write": 4, "output_tokens": 0}, (9, None, 0)),
        ({"input_tokens": -1, "input_tokens_cache_read": 11, "output_tokens": 3}, (None, None, None)),  # 11 of 10
        (None, (None, None, None)),
    ],
    ids=["cached", "written", "impossible", "none"],
)
def test_tokens_are_counted_with_the_cached_ones(
    counts: dict[str, int] | None, expected: tuple[int | None, int | None, int | None]
) -> None:
    from inspect_ai.model import ModelUsage

    assert token_counts(None if counts is None else ModelUsage(**counts)) == expected


def test_reasons_are_one_line_without_keys_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVEAL_MODEL_KEY", "abc123")
    reason = reason_text(
        "Error:\n  POST http://10.0.0.7:8000/v1/chat (Authorization: Bearer sk-9f)\tkey abc123 refused"
    )
    assert reason == "Error: POST <address> (Authorization: Bearer ***) key *** refused"
