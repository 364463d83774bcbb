"""Baselines: chance scores as chance should, and the prior answers the usual position of a finding."""

from __future__ import annotations

import numpy as np
import pytest

from reveal_bench.evaluation.baselines import chance_baseline, fit_location_prior, location_prior_baseline
from reveal_bench.geometry import Grid
from reveal_bench.kinds.localization.records import ImageManifest, ManifestRow
from reveal_bench.kinds.localization.scoring import score_localization, summarize
from reveal_bench.masks import decode_mask
from reveal_bench.metrics.bootstrap import MACRO
from reveal_bench.metrics.intervals import Resampling
from tests.kinds.test_scoring import FINDINGS, record, square


def manifest(n: int, size: tuple[int, int] = (16, 16)) -> ImageManifest:
    rows = {f"i{k}": ManifestRow(f"i{k}", f"i{k}", "PA", size[1], size[0], ("Edema",)) for k in range(n)}
    return ImageManifest("chexlocalize", "1.0.0", "released", 8, FINDINGS, rows)


def test_chance_answers_every_question_evenly_and_scores_what_grid_chance_says() -> None:
    questions = manifest(4000)
    predictions = chance_baseline(questions, seed=1)
    assert [(p.image_id, p.finding) for p in predictions] == questions.asked_pairs()
    cells = [p.cell for p in predictions]
    assert set(cells) == set(Grid(8).cells)
    records = [record(image_id, {"Edema": square(4, 4, 6)}) for image_id in questions.rows]
    estimates = summarize(score_localization(predictions, records, findings=["Edema"]), Resampling(50))
    by_metric = {e.metric: e.value for e in estimates if e.finding == MACRO}
    # 3 x 3 of the 64 cells are hits; the standard error of 4,000 draws is 0.0055
    assert by_metric["grid_chance"] == 9 / 64
    assert by_metric["grid_hit"] == pytest.approx(9 / 64, abs=0.022)


def test_chance_depends_on_its_seed_alone() -> None:
    assert chance_baseline(manifest(9), seed=3) == chance_baseline(manifest(9), seed=3)
    assert chance_baseline(manifest(9), seed=3) != chance_baseline(manifest(9), seed=4)


def test_the_prior_finds_the_common_place() -> None:
    # three of four masks cover the 8 x 8 square at (2, 2) of 32 x 32, one is elsewhere
    masks = [square(2, 2, 8, size=(32, 32))] * 3 + [square(20, 20, 8, size=(32, 32))]
    records = [record(f"r{k}", {"Edema": mask}) for k, mask in enumerate(masks)]
    prior = fit_location_prior(records, FINDINGS)["Edema"]
    assert prior.n == 4
    assert 2 / 32 <= prior.point[0] < 10 / 32
    assert 2 / 32 <= prior.point[1] < 10 / 32
    assert prior.cell in {"B2", "C2", "B3", "C3"}  # cells of 4 px; columns and rows 1 and 2 are wholly covered
    (prediction,) = location_prior_baseline(manifest(1, size=(64, 48)), {"Edema": prior})
    assert prediction.mask is not None
    expected = np.zeros((64, 48))
    expected[4:20, 3:15] = 1  # the same square, in a picture of another size
    assert np.array_equal(decode_mask(prediction.mask), expected)


def test_a_finding_that_the_released_half_lacks_gets_the_pooled_prior() -> None:
    priors = fit_location_prior([record("r", {"Edema": square(2, 2, 8)})], FINDINGS)
    assert (priors["Edema"].n, priors["Cardiomegaly"].n) == (1, 0)
    assert priors["Cardiomegaly"].cell == priors["Edema"].cell


def test_a_prior_needs_at_least_one_mask() -> None:
    with pytest.raises(ValueError, match="must contain at least one reference mask or box, got none in 1 images"):
        fit_location_prior([record("r", {})], FINDINGS)
