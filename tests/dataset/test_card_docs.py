"""The two pages about datasets agree with the code: every source, every config, every column, every command."""

import re

import pytest

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.cli import data as cli_folder
from reveal_bench.cli import run as cli_report
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.tasks.rows import ratings_features
from reveal_bench.sources import BUILDERS
from tests.conftest import ROOT

SOURCES = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
DATASETS = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")


def test_every_source_is_in_the_table_with_its_licence():
    rows = dict(re.findall(r"^\| \[`([\w-]+)`\].*?\| (restricted|open) \|", SOURCES, re.MULTILINE))
    assert rows == {name: BENCHMARKS[builder.benchmark].licence for name, builder in BUILDERS.items()}


def test_links_within_the_page_lead_somewhere():
    headings = re.findall(r"^## (.+)$", SOURCES, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([\w-]+)\)", SOURCES)) <= anchors


@pytest.mark.parametrize("page", [SOURCES, DATASETS])
def test_links_to_other_pages_lead_somewhere(page):
    for name in re.findall(r"\]\((\w+\.md)\)", page):
        assert (ROOT / "docs" / name).is_file()


@pytest.mark.parametrize("name", KINDS)
def test_every_column_is_explained(name):
    kind = KINDS[name]
    benchmark = next(row for row in BENCHMARKS.values() if row.kind == name)
    start = DATASETS.index(f"\n### `{kind.config}`")
    end = DATASETS.find("\n### ", start + 1)
    section = DATASETS[start : end if end > 0 else None]
    columns = {*kind.features(benchmark), *(ratings_features() if name == "tasks" else ())}
    assert columns <= set(re.findall(r"`(\w+)`", section))


def test_facts_of_an_image_are_listed():
    facts = KINDS["findings"].features(BENCHMARKS["reveal-cxr"])["image_facts"].feature
    assert set(facts) <= set(re.findall(r"`(\w+)`", DATASETS))


@pytest.mark.parametrize("command", ["validate", "diff", "report", "attach"])
def test_every_command_and_its_options_are_shown(command):
    assert f"reveal-bench {command} " in DATASETS
    function = cli_report.report if command == "report" else getattr(cli_folder, command)
    options = {
        name for name in re.findall(rf"reveal-bench {command} .*", DATASETS) for name in re.findall(r"--([\w-]+)", name)
    }
    names = {name.replace("_", "-").removeprefix("as-") for name in function.__annotations__}
    assert options <= names


def test_nothing_names_a_machine():
    for page in (SOURCES, DATASETS):
        assert not re.search(r"/(work|tmp|home|root)/", page)
