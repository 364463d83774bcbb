"""Make tables of recorded facts about a result for the reporting checklists CLAIM 2024 and TRIPOD-LLM.

Conventions
-----------
Items have the numbers of the checklists (Tejani et al. 2024, doi 10.1148/ryai.240300, items 1 to 44; Gallifant et al.
2025, doi 10.1038/s41591-024-03425-5, Table 2). The items' names are this project's wording, because the checklists'
wording belongs to the papers. Each item has the recorded fact, or "not recorded". A table only states facts: authors
and reviewers must decide whether an item is fulfilled. Most items are about the study, about which a result records
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reveal_bench.arguments import ArgumentError
from reveal_bench.benchmarks import BENCHMARKS
from reveal_bench.exchange.facts import Result
from reveal_bench.kinds.folder import FolderInfo
from reveal_bench.metrics import METRICS
from reveal_bench.printed_tables import PrintedTable, escape_markdown

CLAIM: dict[str, str] = {
    "1": "title names the AI method", "2": "abstract", "3": "background and intended role", "4": "aims and hypotheses",
    "5": "prospective or retrospective", "6": "goal of the study", "7": "sources of data",
    "8": "inclusion and exclusion", "9": "preprocessing", "10": "choice of subsets", "11": "de-identification",
    "12": "handling of missing data", "13": "image acquisition", "14": "how the reference standard was made",
    "15": "why this reference standard", "16": "who annotated the references", "17": "annotation of the test set",
    "18": "variability between and within readers", "19": "assignment to partitions",
    "20": "level at which partitions are disjoint", "21": "intended sample size", "22": "description of the model",
    "23": "software and versions", "24": "initial parameters of the model", "25": "training",
    "26": "selection of the final model", "27": "ensembles", "28": "metrics", "29": "significance and uncertainty",
    "30": "robustness and sensitivity", "31": "explanation of outputs", "32": "evaluation on internal data",
    "33": "test on external data", "34": "registration as a trial", "35": "numbers included and excluded",
    "36": "characteristics of cases per partition", "37": "performance with uncertainty",
    "38": "diagnostic performance with precision", "39": "analysis of failures", "40": "limitations",
    "41": "implications for practice", "42": "full protocol", "43": "availability of software, model and data",
    "44": "funding",
}  # fmt: skip
"""Item of CLAIM 2024 -> the item's subject."""

TRIPOD_LLM: dict[str, str] = {
    "1": "title names task, population and outcome", "2": "abstract", "3a": "context and rationale",
    "3b": "population, intended use and users", "4": "objectives", "5a": "sources of data",
    "5b": "description of the data", "5c": "oldest and newest data", "5d": "preprocessing and quality checks",
    "5e": "missing and imbalanced data", "6a": "model, version, last training", "6b": "development of the model",
    "6c": "prompts and inference settings", "6d": "raw and processed output", "6e": "classification and thresholds",
    "7a": "metrics of output quality", "7b": "relevance of metrics to the use", "7c": "outcome, prediction and metrics",
    "7d": "assessors and their agreement", "7e": "comparison with other systems", "8a": "labelling and its guidelines",
    "8b": "number and agreement of annotators", "8c": "background of annotators", "9a": "design of prompts",
    "9b": "data used for prompts", "10": "preparation for summaries", "11": "instruction tuning", "12": "compute",
    "13": "ethical approval", "14a": "funding", "14b": "conflicts of interest", "14c": "protocol of the study",
    "14d": "registration", "14e": "availability of data", "14f": "availability of code", "15": "public involvement",
    "16a": "flow of data", "16b": "characteristics of data", "16c": "development and evaluation data compared",
    "16d": "numbers in each analysis", "17": "performance", "18": "updating of the model", "19a": "interpretation",
    "19b": "limitations", "19c": "known challenges of the data", "19d": "intended use of the implementation",
    "19e": "handling of poor input", "19f": "interaction and expertise of users", "19g": "next steps",
}  # fmt: skip
"""Item of TRIPOD-LLM -> the item's subject."""

NOT_RECORDED = "not recorded"


@dataclass(frozen=True)
class Recorded:
    """A result, with the dataset folder and the run folder from which further facts are taken.

    Attributes
    ----------
    folder : the dataset folder, whose card (``README.md``) has the same sections for every benchmark
    run, usage : ``run.json`` and ``summary.json`` of the run folder that made the predictions

    Raises
    ------
    ValueError
        If the folder or the run has another benchmark, version or split than the result.
    """

    result: Result
    folder: FolderInfo | None = None
    run: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        of = (self.result.benchmark, self.result.version, self.result.split)
        if self.folder is not None and (self.folder.benchmark, self.folder.version) != of[:2]:
            got = f"{self.folder.benchmark} {self.folder.version}"
            raise ArgumentError("folder", f"must be of {' '.join(of[:2])}, like the result", got)
        if self.run is not None:
            made = tuple(str(self.run.get(name)) for name in ("benchmark", "benchmark_version", "split"))
            if made != of:
                raise ArgumentError("run", f"must be of {' '.join(of)}, like the result", " ".join(made))

    def card(self, *sections: str) -> str | None:
        """Return a reference to sections of the dataset's card; None without a folder."""
        if self.folder is None:
            return None
        named = " and ".join(f"«{section}»" for section in sections)
        return f"dataset card (README.md of {self.folder.benchmark} {self.folder.version}), {named}"

    @property
    def data(self) -> str:
        """The data on which the result was scored."""
        known = BENCHMARKS.get(self.result.benchmark)
        source = "" if known is None else f" ({known.source})"
        return f"{self.result.place}{source}; references SHA-256 {self.result.references_sha256}"

    @property
    def size(self) -> str | None:
        """Numbers of images or cases in the split, and of predictions."""
        split = {} if self.folder is None else self.folder.splits.get(self.result.split, {})
        parts = [f"{name.removeprefix('n_')} {count}" for name, count in split.items() if isinstance(count, int)]
        if self.result.n_predictions is not None:
            parts.append(f"predictions {self.result.n_predictions}, missing {self.result.n_missing}")
        return ", ".join(parts) or None

    @property
    def missing(self) -> str:
        """The treatment of questions without an answer."""
        if self.result.allow_missing:
            return "a question without an answer counts as a miss"
        return "a file without an answer to every question is refused"

    @property
    def protocol(self) -> str | None:
        """The conditions, other than the data, on which the scores depend."""
        parts = (f"{name} {json.dumps(value)}" for name, value in self.result.protocol.items())
        return "; ".join(parts) or None

    @property
    def metrics(self) -> str:
        """The metrics of the result, by name and definition."""
        names = dict.fromkeys(figure.metric for figure in self.result.figures)
        return "; ".join(
            f"{METRICS[name].title} ({METRICS[name].formula})" if name in METRICS else name for name in names
        )

    @property
    def uncertainty(self) -> str | None:
        """The method of the intervals."""
        methods = dict.fromkeys(figure.method for figure in self.result.figures if figure.method is not None)
        return f"95% intervals: {'; '.join(methods)}" if methods else None

    @property
    def performance(self) -> str:
        """All scores over findings, with their intervals."""
        result, parts = self.result, []
        for figure in result.figures:
            if figure.is_macro:
                ends = result.interval(figure)
                interval = "" if ends is None else f" ({' to '.join(ends)})"
                parts.append(f"{figure.title} {result.shown(figure)[0]}{interval}")
        held = "" if result.caveat is None else f"; {result.caveat}"
        return f"macro averages: {', '.join(parts) or 'none'}{held}"

    @property
    def model(self) -> str | None:
        """The stated name of the model, and the names that the service reported in its answers."""
        if self.result.model is None and self.run is None:
            return None
        stated = self.result.model if self.run is None else self.run["model"]
        served = ", ".join((self.usage or {}).get("served_models", ()))
        return f"{stated}, as stated" + (f"; the service answered as {served}" if served else "")

    @property
    def software(self) -> str:
        """Programs and their versions."""
        programs = {**self.result.software, **((self.run or {}).get("harness") or {})}
        return ", ".join(f"{name} {version}" for name, version in programs.items())

    @property
    def inference(self) -> str | None:
        """The settings and parameters of the prompts."""
        if self.run is None:
            return None
        settings = {**(self.run.get("settings") or {}), **(self.run.get("parameters") or {})}
        parts = ", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items() if value is not None)
        return f"{parts or 'no settings'}; epochs {self.run['epochs']}"

    @property
    def compute(self) -> str | None:
        """The number of tokens, and their cost."""
        if self.usage is None:
            return None
        cost = self.usage.get("cost")
        priced = "" if cost is None else f"; cost {cost}"
        return f"tokens in {self.usage['tokens_in']}, out {self.usage['tokens_out']}{priced}"

    @property
    def proof(self) -> str:
        """Digests with which the scores can be checked, and the receipt if there is one."""
        signed = self.result.receipt
        if signed is None:
            return f"Scored at home and not signed. Prediction file SHA-256 {self.result.file_sha256}."
        return f"Receipt {signed.number}, SHA-256 {signed.hash}, key {signed.key_id}; signature checked."


def claim_table(recorded: Recorded) -> str:
    """Return the facts for CLAIM 2024 as a page of Markdown."""
    facts = {
        "7": recorded.data,
        "8": recorded.card("Collection"),
        "9": recorded.card("Features"),
        "10": recorded.result.asked,
        "11": recorded.card("Privacy"),
        "12": recorded.missing,
        "13": recorded.card("Collection"),
        **dict.fromkeys(("14", "16", "17", "18"), recorded.card("Annotation")),
        **dict.fromkeys(("19", "20"), recorded.card("Configs and splits")),
        "22": recorded.model,
        "23": recorded.software,
        "28": recorded.metrics,
        "29": recorded.uncertainty,
        "35": recorded.size,
        "36": recorded.card("Demographics"),
        "37": recorded.performance,
        "42": recorded.protocol,
        "43": recorded.card("Licence and terms"),
    }
    return _page("CLAIM 2024", CLAIM, facts, recorded)


def tripod_llm_table(recorded: Recorded) -> str:
    """Return the facts for TRIPOD-LLM as a page of Markdown."""
    facts = {
        "5a": recorded.data,
        "5b": recorded.card("Features", "Demographics"),
        "5d": recorded.card("Collection"),
        "5e": recorded.missing,
        "6a": recorded.model,
        "6c": recorded.inference,
        "7c": recorded.metrics,
        **dict.fromkeys(("8a", "8b", "8c"), recorded.card("Annotation")),
        "12": recorded.compute,
        "14e": recorded.card("Licence and terms"),
        "14f": recorded.software,
        "16b": recorded.card("Demographics"),
        "16d": recorded.size,
        "17": "; ".join(filter(None, (recorded.performance, recorded.uncertainty))),
        "19c": recorded.card("Known holes"),
    }
    return _page("TRIPOD-LLM", TRIPOD_LLM, facts, recorded)


def _page(name: str, items: Mapping[str, str], facts: Mapping[str, str | None], recorded: Recorded) -> str:
    n_recorded = sum(facts.get(item) is not None for item in items)
    about = escape_markdown(recorded.result.place)
    rows = [(item, about, escape_markdown(facts.get(item) or NOT_RECORDED)) for item, about in items.items()]
    lines = [
        f"# Recorded facts for {name}",
        "",
        f"{about}. {n_recorded} of {len(items)} items have a recorded fact. This table does not state whether the "
        "checklist is met; items have the checklist's numbers, but names of our own.",
        "",
        escape_markdown(recorded.proof),
        "",
        PrintedTable(("item", "about", "recorded"), rows).to_markdown(escape=str),
    ]
    return "\n".join(lines) + "\n"
