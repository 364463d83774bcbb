"""The two pages about datasets agree with the code: every source, every config, every column, every command."""

import re

import pytest

from reveal_bench.benchmarks import BENCHMARKS, SOURCES, bundled
from reveal_bench.cli import data as cli_folder
from reveal_bench.cli import report as cli_report
from reveal_bench.kinds import KINDS
from reveal_bench.kinds.tasks.rows import ratings_features
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
DATASETS = (ROOT / "docs" / "datasets.md").read_text(encoding="utf-8")


def anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def test_the_table_of_sources_is_that_of_the_code_row_by_row():
    pictures = {"restricted": "no", "open": "yes, with attribution"}
    rows = [
        f"| [`{name}`](#{anchor(source.section)}) | {', '.join(filter(None, [benchmark.kind, source.holds]))} "
        f"| {benchmark.licence} | {pictures[benchmark.licence]} |"
        for name, (source, benchmark) in SOURCES.items()
    ]
    assert rows == re.findall(r"^\| \[.*$", PAGE, re.MULTILINE)


def test_every_benchmark_has_a_source_and_a_card_and_no_card_is_of_another():
    cards = {row.card or row.name for row in BENCHMARKS.values()}
    assert {benchmark.name for _, benchmark in SOURCES.values()} | {"own-findings"} == cards  # of any tree of studies
    assert {path.stem for path in bundled("dataset_cards").glob("*.md")} == cards


def test_links_within_the_page_lead_somewhere():
    headings = re.findall(r"^###? (.+)$", PAGE, re.MULTILINE)
    anchors = set(map(anchor, headings))
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= anchors


@pytest.mark.parametrize("page", [PAGE, DATASETS])
def test_links_to_other_pages_lead_somewhere(page):
    for name in re.findall(r"\]\((\w+\.md)\)", page):
        assert (ROOT / "docs" / name).is_file()


def section_of(config):
    start = DATASETS.index(f"\n### `{config}`")
    end = DATASETS.find("\n### ", start + 1)
    return DATASETS[start : end if end > 0 else None]


@pytest.mark.parametrize("name", KINDS)
def test_every_column_is_explained(name):
    kind = KINDS[name]
    benchmark = next(row for row in BENCHMARKS.values() if row.kind == name)
    section = section_of(kind.config)
    if "The columns of `localization`." in section:
        section += section_of("localization")
    columns = {*kind.table.features(benchmark), *(ratings_features() if name == "tasks" else ())}
    assert columns <= set(re.findall(r"`(\w+)`", section))


def test_facts_of_an_image_are_listed():
    facts = KINDS["findings"].table.features(BENCHMARKS["reveal-cxr"])["image_facts"].feature
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
    for page in (PAGE, DATASETS):
        assert not re.search(r"/(work|tmp|home|root)/", page)
