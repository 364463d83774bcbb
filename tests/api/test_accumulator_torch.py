"""A training loop of 50 epochs in PyTorch, whose accumulator has the figures of `score` (`make soak`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.conftest import ROOT
from tests.kinds.folders import studies
from tests.saliency.torch_env import PYTHON, needs_torch

__all__ = ["studies"]

pytestmark = needs_torch

LOOP = """
import sys
import pandas as pd
import torch
import reveal_bench as rb

options = {"n_resamples": 1, "strata": False}
bench = rb.load(sys.argv[1], split="test")
ids = [study.study_id for study in bench.references]
wanted = torch.tensor([[float(finding in study.labels) for finding in bench.findings] for study in bench.references])
torch.manual_seed(0)
inputs = torch.randn(len(ids), 8)
model = torch.nn.Linear(8, len(bench.findings))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
metric = rb.Accumulator(bench, **options)
for epoch in range(50):
    metric.reset()
    batches = []
    for rows in torch.randperm(len(ids)).split(3):
        logits = model(inputs[rows])
        torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted[rows]).backward()
        optimizer.step()
        optimizer.zero_grad()
        batch_ids = [ids[row] for row in rows]
        metric.update(logits.sigmoid(), batch_ids)  # still with its gradient
        batches.append(pd.DataFrame(logits.sigmoid().detach().numpy(), batch_ids, bench.findings))
    assert metric.compute().to_json() == rb.score(pd.concat(batches), bench, **options).to_json(), epoch
print("equal in", epoch + 1, "epochs")
"""


def test_fifty_epochs_in_torch_have_the_figures_of_score(studies: tuple[Path, Path]) -> None:
    assert PYTHON is not None
    done = subprocess.run([PYTHON, "-c", LOOP, studies[0]], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "equal in 50 epochs\n", done.stderr
