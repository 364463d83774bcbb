"""Documents agree with the code: generated pages are what their generators write, code in READMEs runs."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from reveal_bench import api
from reveal_bench.api import docs as api_docs
from reveal_bench.cli.score import metrics
from reveal_bench.metrics import METRICS
from reveal_bench.metrics.docs import render
from tests.conftest import ROOT

MODULES = sorted(path.parent for path in (ROOT / "reveal_bench" / "evaluate_modules").glob("*/README.md"))


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(metrics)
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_metrics_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == render(), "docs/metrics.md drifted: run python -m reveal_bench.metrics.docs > docs/metrics.md"


def test_the_page_of_functions_is_up_to_date() -> None:
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert written == api_docs.render(), "docs/api.md drifted: run python -m reveal_bench.api.docs > docs/api.md"
    for name in api.__all__:
        assert f"`rb.{name}`" in written or f"### `{name}`" in written
    assert not re.search(r":\w+:`", written), "a reStructuredText role is left"


def test_metrics_page_holds_every_metric() -> None:
    page = render()
    for metric in METRICS.values():
        assert f"| `{metric.name}` |" in page
        assert f"### `{metric.function}(" in page
    assert not re.search(r":\w+:`", page), "a reStructuredText role is left"


def test_metrics_command() -> None:
    text = run()
    for metric in METRICS.values():
        assert re.search(rf"^  {metric.name} ", text, re.MULTILINE)
        assert metric.undefined in text
    assert "AUROC" not in run("point_hit")
    document = json.loads(run("--json"))
    assert document["schema"] == 1
    assert [row["name"] for row in document["metrics"]] == list(METRICS)
    (difference,) = json.loads(run("mean_absolute_difference", "--json"))["metrics"]
    assert (difference["low"], difference["high"], difference["better"]) == (0, None, "lower")  # no upper end: null
    assert set(difference) == {
        "name", "title", "low", "high", "better", "undefined", "source", "formula", "oracle", "family", "function",
        "options", "symmetric", "version",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"`names` must be among point_hit, .*, got 'dice'"):
        run("dice")


def test_modules_are_found() -> None:
    folders = {path.parent for path in (ROOT / "reveal_bench" / "evaluate_modules").glob("*/*.py")}
    assert set(MODULES) == folders


@pytest.mark.parametrize("folder", MODULES, ids=lambda folder: folder.name)
def test_evaluate_modules_are_ready_for_the_hub(folder: Path) -> None:
    files = {path.name for path in folder.iterdir() if path.is_file()}
    assert files == {"README.md", "app.py", "requirements.txt", f"{folder.name}.py"}
    card = yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert (card["sdk"], card["app_file"]) == ("gradio", "app.py")
    assert {"evaluate", "metric"} <= set(card["tags"])
    assert f'launch_widget("{folder.name}")' in (folder / "app.py").read_text(encoding="utf-8")
    assert "reveal-bench[evaluate]" in (folder / "requirements.txt").read_text(encoding="utf-8")
    # `evaluate` finds what a module needs with a regular expression: absolute imports, one on a line
    code = (folder / f"{folder.name}.py").read_text(encoding="utf-8")
    for line in re.findall(r"^ *(?:import|from) .*$", code, re.MULTILINE):
        assert re.fullmatch(r"import [\w.]+|from typing import Any", line), line


@pytest.mark.parametrize("folder", MODULES, ids=lambda folder: folder.name)
def test_readme_code_of_evaluate_modules_runs(folder: Path) -> None:
    pytest.importorskip("evaluate", reason="the extra [evaluate] is not installed: see README")
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "```python\n>>> " in text
    failed, tried = doctest.testfile(str(folder / "README.md"), module_relative=False)
    assert (failed, tried > 2) == (0, True)
