"""Functions for ``--executor`` that run tasks on Slurm or Ray: copy this file, and enter the names of your cluster.

    reveal-bench build DOWNLOAD --out DATASET --engine datatrove --storage /shared/tasks --executor cluster.py:slurm

Each function takes the step to run, the number of tasks, and the folder for datatrove's logs, and returns a datatrove
executor; the command waits for its tasks. Every machine needs this Python environment with the same versions, and must
see the download and the storage under the same paths. Start the command where jobs are submitted, in a session that
stays open.
"""

from __future__ import annotations

import sys
from typing import Any


def slurm(step: Any, n_tasks: int, logs: str) -> Any:
    """Return an array of Slurm jobs: 50 tasks per job, one after the other, and at most 200 jobs at a time."""
    from datatrove.executor.slurm import SlurmPipelineExecutor

    return SlurmPipelineExecutor(
        [step],
        tasks=n_tasks,
        logging_dir=logs,
        job_name=f"reveal-{step.stage}",
        partition="cpu",
        time="04:00:00",
        cpus_per_task=1,
        mem_per_cpu_gb=2,
        workers=200,
        tasks_per_job=50,
        venv_path=f"{sys.prefix}/bin/activate",
    )


def ray(step: Any, n_tasks: int, logs: str) -> Any:
    """Return tasks of one core each on a running Ray cluster; needs ``pip install "ray[default]"``."""
    from datatrove.executor.ray import RayPipelineExecutor
    from ray import init

    init(address="auto", ignore_reinit_error=True)
    return RayPipelineExecutor([step], tasks=n_tasks, logging_dir=logs, cpus_per_task=1, mem_per_cpu_gb=2, workers=200)
