"""What must hold of a row of the config `multilabel`; pictures are checked elsewhere.

A fault is (field, rule, value). Codes have names and lists are there: that is checked before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reveal_bench.kinds.findings.records import AGREEMENTS
from reveal_bench.kinds.rows import Fault, Row, facts_faults, parallel_faults

__all__ = ["study_faults"]

N_AGREE_ALL = {0: 2, 1: 3}
"""Code of AGREEMENTS -> how many readers that is."""


def study_faults(row: Row, findings: Sequence[str]) -> Iterator[Fault]:
    """What is wrong in the row of a study."""
    yield from parallel_faults(row, "image_ids", {"images": "images", "views": "views", "image_facts": "image_facts"})
    if not row["image_ids"]:
        yield "image_ids", "must name at least one image", "none"
    yield from facts_faults(row["image_facts"], row["image_ids"], "image_facts")
    if [facts["view"] for facts in row["image_facts"]] != row["views"]:
        yield "views", "must be those of `image_facts`", str(row["views"])
    vector = [int(code in row["labels"]) for code in range(len(findings))]
    if row["label_vector"] != vector:
        yield "label_vector", f"must be {vector}, as `labels` say", str(row["label_vector"])
    if row["labels"] != sorted(set(row["labels"])):
        yield "labels", "must be in order, each once", str(row["labels"])
    n_agree = row["n_agree_all"]
    if n_agree is not None and not 0 <= n_agree <= 3:
        yield "n_agree_all", "must lie in 0 to 3", str(n_agree)
    if n_agree is not None and row["agreement"] is not None and N_AGREE_ALL[row["agreement"]] != n_agree:
        yield "agreement", f"must fit `n_agree_all`, which is {n_agree}", AGREEMENTS[row["agreement"]]
