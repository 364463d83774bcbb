"""``CITATION.cff`` of a dataset folder: whom the source's card names, and nobody else."""

from __future__ import annotations

import re

import jsonschema
import pytest
import yaml

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.card import card_template
from reveal_bench.dataset.citation import render_citation
from tests.results.schemas import CITATION


@pytest.mark.parametrize("synthetic", [False, True])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_it_is_in_the_form_and_names_nobody_that_the_card_does_not(name: str, synthetic: bool) -> None:
    text = render_citation(BENCHMARKS[name], version="1.0.0", synthetic=synthetic)
    assert text is not None
    document = yaml.safe_load(text)
    jsonschema.Draft7Validator(CITATION).validate(document)
    card = re.sub(r"\s+", " ", card_template(BENCHMARKS[name]))
    works = [*document.get("references", ()), *filter(None, [document.get("preferred-citation")])]
    assert len(works) == card.count("author ")
    for author in (author for work in works for author in work["authors"]):
        stated = author.get("name") or f"{author['family-names']}, {author['given-names']}"
        assert stated.replace("á", r"{\'a}") in card
    if synthetic:
        assert (document["authors"], document["license"]) == ([{"name": "The reveal-bench authors"}], "Apache-2.0")


def test_a_source_is_cited_as_its_card_has_it() -> None:
    document = yaml.safe_load(render_citation(BENCHMARKS["chexlocalize"], version="1.1.0", synthetic=False) or "")
    assert document["authors"][0] == {"family-names": "Saporta", "given-names": "Adriel"}
    assert document["authors"][-1] == {"family-names": "Rajpurkar", "given-names": "Pranav"}
    assert document["license-url"].startswith("https://stanfordaimi.azurewebsites.net/")
    paper = document["preferred-citation"]
    assert (paper["doi"], paper["start"], paper["end"]) == ("10.1038/s42256-022-00536-x", "867", "878")
    assert document["references"][0]["authors"][-1] == {"name": "others"}, "a list that ends in `and others`"


def test_a_card_that_cites_nothing_gives_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    template = card_template(BENCHMARKS["chexlocalize"]).split("## Citation")[0] + "## Citation\n\nNone yet.\n"
    monkeypatch.setattr("reveal_bench.dataset.citation.card_template", lambda benchmark: template)
    assert render_citation(BENCHMARKS["chexlocalize"], version="1.0.0", synthetic=False) is None
