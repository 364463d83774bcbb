"""The page ``/metrics``: the leaderboard's counts and durations in the text format of Prometheus.

Conventions
-----------
Counts of the queue are read from the database on request, so that every server reports the same; each server counts its
requests and lint reports since its start. Labels are names of benchmarks, kinds, statuses and route templates, never a
user's text or an id. Times are in seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from sqlalchemy.exc import SQLAlchemyError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reveal_leaderboard.store.database import moment
from reveal_leaderboard.store.queue import ALIVE_SECONDS
from reveal_leaderboard.store.store import Store
from reveal_leaderboard.store.tables import (
    DELIVERY_STATES,
    JOB_STATES,
    STATUSES,
    deliveries,
    flags,
    jobs,
    submissions,
    workers,
)
from reveal_leaderboard.web.middleware import Gate

RECENT_SECONDS = 24 * 3600.0
QUANTILES = (0.5, 0.9, 0.99)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class Metrics:
    """The metrics of a leaderboard; calling the object returns the page.

    Parameters
    ----------
    benchmarks : names under which lint reports are counted
    """

    def __init__(self, store: Store, benchmarks: Iterable[str] = ()) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Database(store))
        self._requests = Counter(
            "reveal_http_requests", "Requests answered by this server.", ["method", "route", "status"],
            registry=self._registry,
        )  # fmt: skip
        self._lints = Counter(
            "reveal_lint_reports", "Files that this server checked.", ["benchmark", "verdict"], registry=self._registry
        )
        self._benchmarks = tuple(benchmarks)
        for benchmark in self._benchmarks:
            for verdict in ("passed", "refused"):
                self._lints.labels(benchmark, verdict)

    def __call__(self) -> str:
        """Return the page."""
        return generate_latest(self._registry).decode("utf-8")

    def count_request(self, method: str, route: str, status: int) -> None:
        """Count an answered request; `route` is the template of its path."""
        self._requests.labels(method if method in METHODS else "other", route, str(status)).inc()

    def count_lint(self, benchmark: str, passed: bool) -> None:
        """Count a lint report."""
        name = benchmark if benchmark in self._benchmarks else "other"
        self._lints.labels(name, "passed" if passed else "refused").inc()


class CountRequests(Gate):
    """ASGI middleware that counts answers by the template of their route.

    Gradio's routes and unknown addresses are not in `templates`, and count as "page".
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, templates: Iterable[str]) -> None:
        super().__init__(app)
        self._metrics, self._templates = metrics, frozenset(templates)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watch)
        finally:
            template = getattr(scope.get("route"), "path", None)
            route = template if template in self._templates else "page"
            self._metrics.count_request(scope["method"], route, status)


class _Database:
    """Collects the metrics stored in the database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> list[Metric]:
        """Return an empty list, so that registration does not query the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; if the database is unreachable, yield only `reveal_database_up` with the value
        0.
        """
        try:
            with self._store.read() as connection:
                now = moment(connection)
                families = [
                    *_submissions(connection), *_queue(connection, now), *_workers(connection, now),
                    *_durations(connection, now), *_deliveries(connection),
                ]  # fmt: skip
        except SQLAlchemyError:
            yield _gauge("reveal_database_up", "Whether the database answers.", 0)
            return
        yield _gauge("reveal_database_up", "Whether the database answers.", 1)
        yield from families


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _submissions(connection: sa.Connection) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "reveal_submissions", "Submissions by benchmark and status.", labels=["benchmark", "status"]
    )
    query = sa.select(submissions.c.benchmark, submissions.c.status, sa.func.count())
    counts: dict[str, dict[str, int]] = defaultdict(dict)
    for benchmark, status, n in connection.execute(query.group_by(submissions.c.benchmark, submissions.c.status)):
        counts[benchmark][status] = n
    for benchmark, by_status in sorted(counts.items()):
        for status in STATUSES:
            family.add_metric([benchmark, status], by_status.get(status, 0))
    yield family
    n_flags = connection.execute(sa.select(sa.func.count()).where(flags.c.cleared_at.is_(None))).scalar_one()
    yield _gauge("reveal_flags_open", "Flags that no moderator has cleared.", n_flags)


def _deliveries(connection: sa.Connection) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "reveal_webhook_deliveries", "Messages to webhooks in the last 30 days, by status.", labels=["status"]
    )
    query = sa.select(deliveries.c.status, sa.func.count()).group_by(deliveries.c.status)
    counts = {row.status: row[1] for row in connection.execute(query)}
    for status in DELIVERY_STATES:
        family.add_metric([status], counts.get(status, 0))
    yield family


def _queue(connection: sa.Connection, now: float) -> Iterator[Metric]:
    family = GaugeMetricFamily("reveal_jobs", "Jobs by kind and status.", labels=["kind", "status"])
    query = sa.select(jobs.c.kind, jobs.c.status, sa.func.count()).group_by(jobs.c.kind, jobs.c.status)
    counts = {(kind, status): n for kind, status, n in connection.execute(query)}
    for key in product(sorted({kind for kind, _ in counts}), JOB_STATES):  # zeros too, for alarms on changes
        family.add_metric(key, counts.get(key, 0))
    yield family
    waiting = (jobs.c.kind == "score", jobs.c.status == "queued")
    n, oldest = connection.execute(sa.select(sa.func.count(), sa.func.min(jobs.c.created_at)).where(*waiting)).one()
    yield _gauge("reveal_queue_length", "Submissions that wait for a worker.", n)
    waited = 0.0 if oldest is None else max(0.0, now - oldest)
    yield _gauge("reveal_queue_oldest_seconds", "How long the first submission in the queue has waited.", waited)


def _workers(connection: sa.Connection, now: float) -> Iterator[Metric]:
    query = sa.select(sa.func.count()).where(workers.c.seen_at >= now - ALIVE_SECONDS)
    n_alive = connection.execute(query).scalar_one()
    yield _gauge("reveal_workers_alive", f"Workers seen in the last {ALIVE_SECONDS:g} seconds.", n_alive)


def _durations(connection: sa.Connection, now: float) -> Iterator[Metric]:
    lasted = GaugeMetricFamily(
        "reveal_job_seconds", "Quantiles of the durations of jobs in the last day.", labels=["kind", "quantile"]
    )
    ended = (jobs.c.status == "done", jobs.c.ended_at >= now - RECENT_SECONDS, jobs.c.started_at.is_not(None))
    seconds: dict[str, list[float]] = defaultdict(list)
    for kind, start, end in connection.execute(
        sa.select(jobs.c.kind, jobs.c.started_at, jobs.c.ended_at).where(*ended)
    ):
        seconds[kind].append(max(0.0, end - start))
    for kind, values in sorted(seconds.items()):
        for quantile in QUANTILES:
            lasted.add_metric([kind, str(quantile)], _quantile(sorted(values), quantile))
    yield lasted


def _quantile(ascending: list[Any], q: float) -> float:
    """Return the smallest value for which at least the proportion `q` of all values is as small or smaller."""
    rank = next(i for i in range(1, len(ascending) + 1) if i >= q * len(ascending) - 1e-9)
    return float(ascending[rank - 1])
