"""Simulate how reliably controls detect models that use the image, and print the table of docs/asking.md.

Models are simulated on a phantom of 200 images (tests/models/test_controls.py). Two models *look* at 70 or 30 of 100
questions: they point into the finding as shown, mirrored or not. In the other questions, these models point to the
finding's most frequent location. A third model always answers this location (*where it mostly is*). A fourth model
*draws*: it points to where the finding is on another, random image. A trial draws patients with replacement until there
are 100 questions, and which of these are looked at. The score falls if the whole 95% interval of the macro hit rate,
control minus original image, is below 0. The interval is that of ``report`` (`compare_resampled`, by the jackknife).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1]))

from reveal_bench.evaluation.compare import compare_resampled
from reveal_bench.evaluation.permutation import draw_signs
from reveal_bench.findings import CHEXLOCALIZE_FINDINGS
from reveal_bench.kinds.questions import Question
from reveal_bench.masks import decode_mask
from reveal_bench.metrics.bootstrap import bootstrap_means, resampling_counts
from reveal_bench.metrics.intervals import Resampling
from reveal_bench.metrics.resampled import Figures
from reveal_bench.models.answers import read_reply
from reveal_bench.models.controls import CONTROLS
from reveal_bench.models.questions import AskSettings
from tests.models.test_controls import LOCAL, SIDE, Guessing, Looking, Phantom, make_phantom

N_FILMS, N_QUESTIONS, N_TRIALS, N_RESAMPLES = 200, 100, 500, 50
ANSWERS = 20
"""Number of answers per question of the model that draws; a trial uses one of them."""
GROUPS = {"all findings": CHEXLOCALIZE_FINDINGS, "local findings": LOCAL}
MODELS = ("looks at 70%", "looks at 30%", "usual place", "draws")

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class World:
    """Hits (n_questions, n_controls + 1), the original image first; the drawing model has :data:`ANSWERS` of each."""

    patients: Array
    findings: Array
    seen: Array
    usual: Array
    drawn: Array


def world_of(phantom: Phantom) -> World:
    """Return each model's hits on each question under each control."""
    names = list(phantom.findings)
    looking, guessing, rng = Looking(phantom, share=1.0), Guessing(phantom), np.random.default_rng(0)
    patients = {unit: i for i, unit in enumerate(dict.fromkeys(q.unit for q in phantom.questions))}
    places = {name: [phantom.deepest[q.id] for q in phantom.questions if q.finding == name] for name in names}
    seen, usual, drawn = [], [], []
    for question in phantom.questions:
        rle = phantom.references[question.unit, question.finding or ""].rle
        assert rle is not None
        mask, under = decode_mask(rle), list(phantom.prompt_images.items())
        pictures = [(control, images[question.id]) for control, images in under]
        seen.append([is_hit(mask, question, c, looking.point(question, picture)) for c, picture in pictures])
        usual.append([is_hit(mask, question, c, guessing.point(question, picture)) for c, picture in pictures])
        own = places[question.finding or ""]
        some = [[own[i] for i in rng.integers(len(own), size=ANSWERS)] for _ in pictures]
        drawn.append(
            [[is_hit(mask, question, c, at) for at in ats] for (c, _), ats in zip(pictures, some, strict=True)]
        )
    findings = np.array([names.index(q.finding or "") for q in phantom.questions])
    return World(
        np.array([patients[q.unit] for q in phantom.questions]), findings, *map(np.array, (seen, usual, drawn))
    )


def is_hit(mask: Array, question: Question, control: str | None, at: tuple[int, int]) -> bool:
    """Return True if an answer is in the reference, after mirroring it back if the image was mirrored."""
    reply = read_reply(f"Point: {at[0]}, {at[1]}", question, AskSettings("point", side=SIDE, control=control))
    if reply.point is None:
        return False
    x, y = (min(int(v), side - 1) for v, side in zip(reply.point, mask.shape[::-1], strict=True))
    return bool(mask[y, x])


def trial(world: World, rng: np.random.Generator) -> Iterator[tuple[str, Array, Array, Array]]:
    """Yield (model, hits (N_QUESTIONS, n_controls + 1), findings, patients) for one draw of patients."""
    by_patient = [np.flatnonzero(world.patients == i) for i in range(world.patients.max() + 1)]
    order = rng.integers(len(by_patient), size=N_QUESTIONS)  # each patient has at least one question
    rows = np.concatenate([by_patient[i] for i in order])[:N_QUESTIONS]
    units = np.repeat(np.arange(N_QUESTIONS), [len(by_patient[i]) for i in order])[:N_QUESTIONS]
    looked_at, answer = rng.random((N_QUESTIONS, 1)), rng.integers(ANSWERS, size=(N_QUESTIONS, 1))
    columns = np.arange(world.usual.shape[1])
    hits = (
        np.where(looked_at < 0.7, world.seen[rows], world.usual[rows]),
        np.where(looked_at < 0.3, world.seen[rows], world.usual[rows]),
        world.usual[rows],
        world.drawn[rows[:, None], columns, answer],
    )
    for model, model_hits in zip(MODELS, hits, strict=True):
        yield model, model_hits, world.findings[rows], units


def falls(hits: Array, findings: Array, units: Array, n_findings: int) -> Array:
    """Return True for each control under which the score falls."""
    n_units = int(units.max()) + 1
    counts, signs = resampling_counts(n_units, Resampling(N_RESAMPLES)), draw_signs(n_units, Resampling(2))
    figures = []
    for column in hits.T.astype(float):
        means = bootstrap_means(column, findings, units, n_groups=n_findings, counts=counts)
        figures.append(Figures(means.values, means.replicates, means.n, means.left_out(), means.rows))
    names = [str(i) for i in range(n_findings)]
    film, *under = figures
    return np.array(
        [compare_resampled(one, film, names, recipe="point_hit", signs=signs)[0].estimate.high < 0 for one in under]
    )


def power(world: World, n_findings: int, n_trials: int = N_TRIALS, seed: int = 0) -> dict[str, Array]:
    """Return model -> proportion of trials in which its score falls, under each control."""
    rng = np.random.default_rng(seed)
    total = {model: np.zeros(world.usual.shape[1] - 1) for model in MODELS}
    for _ in range(n_trials):
        for model, hits, findings, units in trial(world, rng):
            total[model] += falls(hits, findings, units, n_findings)
    return {model: count / n_trials for model, count in total.items()}


def print_table(name: str, world: World, power_by_model: dict[str, Array]) -> None:
    """Print the Markdown table of controls for docs/asking.md."""
    seen, usual = (f"{hits[:, 0].mean():.0%}" for hits in (world.seen, world.usual))
    print(
        f"\n{name}: {len(world.usual)} questions on {world.patients.max() + 1} patients; always looking hits {seen}, "
        f"the usual location hits {usual}"
    )
    print(f"| `--control` | {' | '.join(MODELS)} |\n|---|{'---|' * len(MODELS)}")
    for i, control in enumerate(CONTROLS):
        print(f"| `{control}` | {' | '.join(f'{100 * power_by_model[model][i]:.0f}' for model in MODELS)} |")


def main(groups: Sequence[str] = tuple(GROUPS)) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--films", type=int, default=N_FILMS)
    parser.add_argument("--trials", type=int, default=N_TRIALS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        make_phantom(Path(root), options.films)
        for name in groups:
            phantom = Phantom(Path(root) / "public", Path(root) / "without", GROUPS[name])
            world = world_of(phantom)
            print_table(name, world, power(world, len(GROUPS[name]), options.trials))


if __name__ == "__main__":
    main()
