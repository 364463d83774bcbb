"""``CITATION.cff`` of a dataset folder: it cites exactly the authors on the source's card.

cffconvert checks all of them in `make soak`. By hand::

    python3 -m venv V && V/bin/pip install cffconvert==2.0.0
    REVEAL_CFFCONVERT=V/bin/cffconvert python -m pytest tests/dataset/test_citation.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.dataset.card import card_template
from reveal_bench.dataset.citation import render_citation, render_zenodo
from tests.conftest import ROOT
from tests.exchange.schemas import CITATION


@pytest.mark.parametrize("synthetic", [False, True])
@pytest.mark.parametrize("name", BENCHMARKS)
def test_it_is_in_the_form_and_names_nobody_that_the_card_does_not(name: str, synthetic: bool) -> None:
    text = render_citation(BENCHMARKS[name], version="1.0.0", synthetic=synthetic)
    if name.startswith("own-"):  # nobody but its makers know whom to cite
        assert text is None
        return
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


def test_zenodo_gets_creators_and_access_rights() -> None:
    metadata = json.loads(render_zenodo(BENCHMARKS["chexlocalize"], version="1.1.0", synthetic=False) or "")
    assert (metadata["upload_type"], metadata["version"], metadata["access_right"]) == (
        "dataset",
        "1.1.0",
        "restricted",
    )
    assert metadata["creators"][0] == {"name": "Saporta, Adriel"}
    assert metadata["access_conditions"].startswith("Terms of the source: https://stanfordaimi.azurewebsites.net/")
    assert {"identifier": "10.1038/s42256-022-00536-x", "relation": "isDerivedFrom"} in metadata["related_identifiers"]
    drawn = json.loads(render_zenodo(BENCHMARKS["chexlocalize"], version="1.1.0", synthetic=True) or "")
    assert (drawn["access_right"], drawn["license"]) == ("open", "Apache-2.0")
    assert drawn["title"].startswith("Synthetic stand-in for ")


def test_a_card_that_cites_nothing_gives_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    template = card_template(BENCHMARKS["chexlocalize"]).split("## Citation")[0] + "## Citation\n\nNone yet.\n"
    monkeypatch.setattr("reveal_bench.dataset.citation.card_template", lambda benchmark: template)
    for render in (render_citation, render_zenodo):
        assert render(BENCHMARKS["chexlocalize"], version="1.0.0", synthetic=False) is None


@pytest.mark.skipif("REVEAL_CFFCONVERT" not in os.environ, reason="needs cffconvert in its own environment: make soak")
def test_cffconvert_finds_every_file_valid(tmp_path: Path) -> None:
    program = Path(os.environ["REVEAL_CFFCONVERT"]).absolute()
    texts = [(ROOT / "CITATION.cff").read_text(encoding="utf-8")]
    for benchmark in BENCHMARKS.values():
        texts += [render_citation(benchmark, version="1.0.0", synthetic=drawn) or "" for drawn in (False, True)]
    for i, text in enumerate(texts):
        path = tmp_path / f"{i}.cff"
        path.write_text(text, encoding="utf-8")
        done = subprocess.run([program, "--validate", "-i", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}{done.stdout}{done.stderr}"
