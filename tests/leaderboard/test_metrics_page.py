"""The page for Prometheus: right counts, bounded labels, nothing of a user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families
from reveal_leaderboard.store.deliveries import Deliveries
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.web.metrics_page import CountRequests, Metrics, _quantile
from starlette.testclient import TestClient

from tests.leaderboard.databases import DATABASE_SOURCE, on_both
from tests.leaderboard.filled_board import BENCHMARK, SERVED, FilledBoard, filled

__all__ = ["filled"]


def samples(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the samples as Prometheus reads them."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def of(page: str, name: str, **labels: str) -> float:
    return samples(page)[name, tuple(sorted(labels.items()))]


@on_both
def test_figures_of_the_queue(filled: FilledBoard) -> None:
    filled.queue.beat_worker("test-1", SERVED, "none")
    for _ in range(2):
        Deliveries(filled.store.engine).add_test("chat")
    page = Metrics(filled.store)()
    assert of(page, "reveal_webhook_deliveries", status="waiting") == 2
    assert of(page, "reveal_webhook_deliveries", status="failed") == 0
    assert of(page, "reveal_submissions", benchmark=BENCHMARK, status="scored") == 4
    assert of(page, "reveal_submissions", benchmark=BENCHMARK, status="queued") == 1
    assert of(page, "reveal_submissions", benchmark=BENCHMARK, status="withdrawn") == 1
    assert of(page, "reveal_submissions", benchmark=BENCHMARK, status="refused") == 0
    assert of(page, "reveal_queue_length") == 1
    assert of(page, "reveal_queue_oldest_seconds") >= 0
    assert of(page, "reveal_workers_alive") == 1
    assert of(page, "reveal_jobs", kind="score", status="done") == 4
    assert of(page, "reveal_jobs", kind="score", status="failed") == 0  # said, so that an alarm sees the first
    assert of(page, "reveal_database_up") == 1
    assert 0 <= of(page, "reveal_job_seconds", kind="score", quantile="0.5") < 60


def test_nothing_of_a_user_is_on_it(filled: FilledBoard) -> None:
    page = Metrics(filled.store)()
    words = ["Example", "Model", "predictions.jsonl", filled.team.id, filled.user.id]
    words += [submission.id for submission in filled.store.list_submissions()]
    assert [word for word in words if word in page] == []


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(DATABASE_SOURCE.migrated("sqlite", tmp_path))
    yield store
    store.engine.dispose()


def test_an_empty_board_has_a_page(store: Store) -> None:
    page = Metrics(store)()
    assert of(page, "reveal_queue_length") == 0
    assert of(page, "reveal_queue_oldest_seconds") == 0


def test_a_database_that_is_gone_is_said_to_be(store: Store) -> None:
    with store.write() as connection:
        connection.exec_driver_sql("DROP TABLE jobs")
    page = Metrics(store)()
    assert of(page, "reveal_database_up") == 0
    assert "reveal_queue_length" not in page


def test_requests_are_counted_by_template(store: Store) -> None:
    metrics = Metrics(store)
    app = FastAPI(openapi_url=None)

    @app.get("/api/v1/submissions/{submission_id}")
    def submission(submission_id: str) -> dict[str, str]:
        return {"id": submission_id}

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("no")

    templates = [route.path for route in app.routes]  # type: ignore[attr-defined]
    counted: Any = CountRequests(app, metrics, templates)
    client = TestClient(counted, raise_server_exceptions=False)
    client.get("/api/v1/submissions/canary-1?secret=canary-2")
    client.get("/api/v1/submissions/canary-3")
    client.get("/canary-4")
    client.get("/broken")
    client.request("CANARY-5", "/canary-6")
    page = metrics()
    name = "reveal_http_requests_total"
    assert of(page, name, method="GET", route="/api/v1/submissions/{submission_id}", status="200") == 2
    assert of(page, name, method="GET", route="page", status="404") == 1
    assert of(page, name, method="GET", route="/broken", status="500") == 1
    assert of(page, name, method="other", route="page", status="404") == 1
    assert "canary" not in page.lower()


def test_lint_reports_are_counted_by_known_benchmarks(store: Store) -> None:
    metrics = Metrics(store, [BENCHMARK])
    metrics.count_lint(BENCHMARK, passed=True)
    metrics.count_lint("canary", passed=False)
    page = metrics()
    assert of(page, "reveal_lint_reports_total", benchmark=BENCHMARK, verdict="passed") == 1
    assert of(page, "reveal_lint_reports_total", benchmark=BENCHMARK, verdict="refused") == 0
    assert of(page, "reveal_lint_reports_total", benchmark="other", verdict="refused") == 1
    assert "canary" not in page


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [([3.0], 0.99, 3.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0), ([1.0, 2.0, 3.0, 4.0], 0.9, 4.0)],
)
def test_quantiles_are_values_that_occurred(values: list[float], q: float, expected: float) -> None:
    assert _quantile(values, q) == expected
