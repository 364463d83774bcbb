"""The REST API, asked over a socket."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from reveal_leaderboard.custody.confinement import landlock_abi
from reveal_leaderboard.web.intake import display_name

from reveal_bench.cli import client
from reveal_bench.predictions import predictions_to_jsonl
from tests.leaderboard.conftest import BENCHMARK, METADATA, RARE, Board, Server, guesses

pytestmark = pytest.mark.processes
WriteFile = Callable[..., Path]


def floats(value: Any) -> Iterator[float]:
    """Every float in a JSON document."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from floats(item)


def stored_files(server: Server) -> list[Path]:
    return [path for path in (server.data / "blobs").rglob("*") if path.is_file()]


def named(name: str) -> dict[str, Any]:
    return {**METADATA, "model": {"name": name}}


def test_a_file_with_errors_is_answered_by_its_report_and_leaves_nothing(server: Server, write_file: WriteFile) -> None:
    before = len(stored_files(server))
    file = write_file("bad.jsonl", broken={3: '{"image_id": "nobody", "finding": "Edema", "cell": "D5"}', 7: "no json"})
    answer = server.post(file, named("Broken"))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == 422
    by_line = {problem.get("line"): problem for problem in document["report"]["problems"]}
    assert by_line[3]["value"] == '"nobody"'
    assert {"line", "field", "rule", "value", "hint"} <= set(by_line[7])
    mine = server.get("/api/v1/me/submissions").json()["submissions"]
    assert "Broken" not in [submission["metadata"]["model"]["name"] for submission in mine]
    assert len(stored_files(server)) == before


@pytest.fixture(scope="module")
def scored(server: Server, board: Board, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The first file of the board, accepted and scored."""
    file = tmp_path_factory.mktemp("first") / "good.jsonl"
    file.write_text(predictions_to_jsonl(guesses(board.manifest)), encoding="utf-8")
    answer = server.post(file, named("First"))
    assert answer.status_code == 202, answer.text
    document = answer.json()
    assert (document["status"], document["queue_position"]) == ("queued", 1)
    assert answer.headers["location"] == document["url"] == f"/api/v1/submissions/{document['id']}"
    with server.worker("--once"):
        return server.wait_scored(document["id"])


def test_a_good_file_is_queued_scored_and_shown(server: Server, scored: dict[str, Any]) -> None:
    assert scored["status"] == "scored"
    assert [event["to_status"] for event in scored["events"]] == ["received", "linted", "queued", "scoring", "scored"]
    assert {event["who"] for event in scored["events"]} == {"submitter", "worker"}
    assert scored["score"]["hidden"] == [RARE]
    board = server.get(f"/api/v1/leaderboard?benchmark={BENCHMARK}").json()
    entry = next(entry for entry in board["entries"] if entry["submission_id"] == scored["id"])
    assert entry["is_new"] or entry["rank"] >= 1
    ours = list(floats([scored, board["entries"]]))
    assert ours
    assert all(round(x, 2) == x for x in ours)


@pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")
@pytest.mark.usefixtures("scored")
def test_the_running_server_is_confined_and_never_learns_the_path(server: Server) -> None:
    assert server.get("/readyz").json()["confinement"].startswith(f"landlock-{landlock_abi()}; children: rlimits")
    proc = Path(f"/proc/{server.process.pid}")
    assert "NoNewPrivs:\t1" in (proc / "status").read_text()
    secret = str(server.board.holdout.parent).encode()
    for name in ("environ", "cmdline", "maps"):
        assert secret not in (proc / name).read_bytes()
    opened = [os.readlink(link) for link in (proc / "fd").iterdir()]
    assert not [path for path in opened if secret.decode() in path]
    files = [path for path in server.data.rglob("*") if path.is_file()]
    assert {"leaderboard.sqlite", "leaderboard.sqlite-wal"} <= {path.name for path in files}
    assert not [path for path in files if secret in path.read_bytes()]
    assert secret not in server.log.read_bytes()
    answers = [server.get(path).content for path in ("/config", f"/api/v1/leaderboard?benchmark={BENCHMARK}")]
    assert not [answer for answer in answers if secret in answer]


def test_sending_twice_is_sending_once(server: Server, write_file: WriteFile) -> None:
    file = write_file(seed=5)
    first, second = server.post(file, named("Twice")).json(), server.post(file, named("Twice")).json()
    assert (first["is_new"], second["is_new"]) == (True, False)
    assert first["id"] == second["id"]


def test_an_idempotency_key_belongs_to_one_submission(server: Server, write_file: WriteFile) -> None:
    key = {"Idempotency-Key": "one-key"}
    assert server.post(write_file(seed=6), named("Keyed"), headers=key).status_code == 202
    assert server.post(write_file(seed=6), named("Keyed"), headers=key).status_code == 202
    answer = server.post(write_file(seed=7), named("Keyed"), headers=key)
    assert answer.status_code == 409
    assert answer.json()["type"] == "/problems/key-reused"


def test_missing_pairs_are_errors_unless_allowed(server: Server, write_file: WriteFile, tmp_path: Path) -> None:
    lines = write_file(seed=8).read_text(encoding="utf-8").splitlines()[:-3]
    short = tmp_path / "short.jsonl"
    short.write_text("\n".join(lines), encoding="utf-8")
    assert server.post(short, named("Short")).status_code == 422
    allowed = server.post(short, named("Short"), fields={"allow_missing": "true"})
    assert allowed.status_code == 202
    assert allowed.json()["allow_missing"] is True


@pytest.mark.parametrize("change", [{"kind": "robot"}, {"links": {"code": "http://x.org"}}, {"model": {"name": "<b>"}}])
def test_malformed_metadata_are_refused_with_their_fields(
    server: Server, write_file: WriteFile, change: dict[str, Any]
) -> None:
    answer = server.post(write_file(), {**METADATA, **change})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].split(".")[0] in change


def test_cells_of_another_grid_are_refused_and_not_read_as_the_boards(server: Server, write_file: WriteFile) -> None:
    answer = server.post(write_file(), {**METADATA, "grid": 4})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["field"], error["rule"]) == ("grid", "must be that of the board, 8 cells per side")


def test_a_lattice_of_points_is_refused(server: Server, tmp_path: Path, write_file: WriteFile) -> None:
    """With several points to a case a lattice hits everything; a board takes one."""
    lines = [json.loads(line) for line in write_file().read_text().splitlines()]
    lattice = [{"image_id": e["image_id"], "finding": e["finding"], "points": [[1, 1], [2, 2]]} for e in lines]
    path = tmp_path / "lattice.jsonl"
    path.write_text("".join(json.dumps(entry) + "\n" for entry in lattice))
    answer = server.post(path, METADATA)
    assert answer.status_code == 422
    assert "one point" in answer.json()["report"]["problems"][0]["message"]


@pytest.mark.parametrize("parameters", ['{"a": ' + "9" * 5000 + "}"])
def test_a_number_of_thousands_of_digits_is_no_fault_of_ours(
    server: Server, write_file: WriteFile, parameters: str
) -> None:
    text = json.dumps(METADATA)[:-1] + f', "parameters": {parameters}}}'
    with write_file().open("rb") as file:
        fields = {"benchmark": BENCHMARK, "metadata": text}
        answer = httpx.post(f"{server.url}/api/v1/submissions", data=fields, files={"file": file}, timeout=60)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "metadata"


def test_an_origin_that_is_no_address_is_foreign(server: Server) -> None:
    answer = httpx.post(f"{server.url}/api/v1/submissions", headers={"Origin": "http://[bad"}, timeout=60)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/submissions/none", 404),
        ("/api/v1/leaderboard?benchmark=none", 404),
        ("/api/v1/leaderboard", 422),
        (f"/api/v1/leaderboard?benchmark={BENCHMARK}&format=xml", 422),
        ("/api/v1/benchmarks/none/manifest", 404),
    ],
)
def test_errors_are_problem_documents(server: Server, path: str, status: int) -> None:
    answer = server.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status


def test_the_manifest_is_public_in_two_forms(server: Server, board: Board) -> None:
    [benchmark] = server.get("/api/v1/benchmarks").json()["benchmarks"]
    assert (benchmark["name"], benchmark["n_items"]) == (BENCHMARK, len(board.manifest.rows))
    table = pq.read_table(io.BytesIO(server.get(f"/api/v1/benchmarks/{BENCHMARK}/manifest").content))
    rows = server.get(f"/api/v1/benchmarks/{BENCHMARK}/manifest?format=json").json()["rows"]
    assert table.column("image_id").to_pylist() == [row["image_id"] for row in rows] == list(board.manifest.rows)


def test_the_csv_export_parses(server: Server) -> None:
    answer = server.get(f"/api/v1/leaderboard?benchmark={BENCHMARK}&format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row["source"] for row in rows} == {"submission"}
    assert {"point_hit", "grid_hit", "mask_iou_all"} <= {row["metric"] for row in rows}


def test_the_projects_client_submits_and_follows(server: Server, write_file: WriteFile) -> None:
    document = client.submit(write_file(seed=9), url=server.url, benchmark=BENCHMARK, metadata=named("By client"))
    with server.worker("--once"):
        last = list(client.follow(document["id"], url=server.url, timeout=60))[-1]
    assert last["status"] == "scored"
    with pytest.raises(client.LeaderboardError, match="422"):
        client.submit(write_file(broken={1: "{"}), url=server.url, benchmark=BENCHMARK, metadata=METADATA)


def test_openapi_lists_the_routes(server: Server) -> None:
    paths = server.get("/api/v1/openapi.json").json()["paths"]
    assert {"/api/v1/submissions", "/api/v1/submissions/{submission_id}", "/api/v1/leaderboard", "/readyz"} <= set(
        paths
    )


def test_health(server: Server) -> None:
    assert server.get("/healthz").json() == {"status": "ok"}
    ready = server.get("/readyz").json()
    assert ready["status"] == "ready"
    assert ready["benchmarks"] == [BENCHMARK]


def test_foreign_pages_and_foreign_hosts_are_refused(server: Server) -> None:
    foreign = {"Origin": "https://evil.example"}
    for path in ("/api/v1/submissions", "/gradio_api/upload"):
        assert httpx.post(server.url + path, headers=foreign).status_code == 403
    for path in ("/", "/config", "/healthz"):
        answer = httpx.get(server.url + path, headers=foreign)
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["x-frame-options"] == "DENY"
    assert httpx.get(server.url + "/healthz", headers={"Host": "evil.example"}).status_code == 400


@pytest.mark.parametrize("path", ["/etc/passwd", "{data}/leaderboard.sqlite", "{holdout}/manifest/benchmark.json"])
def test_gradios_file_route_serves_nobody_our_files(server: Server, path: str) -> None:
    wanted = path.format(data=server.data, holdout=server.board.holdout)
    assert server.get(f"/gradio_api/file={wanted}").status_code in (403, 404)


@pytest.mark.parametrize(
    ("name", "shown"), [("../../etc/passwd", "passwd"), ("a\\b.csv", "b.csv"), ("", "upload"), ("x\u202ey\n", "xy")]
)
def test_a_clients_file_name_is_only_shown(name: str, shown: str) -> None:
    assert display_name(name) == shown


def test_the_board_document_is_json_without_nan(server: Server) -> None:
    text = server.get(f"/api/v1/leaderboard?benchmark={BENCHMARK}").text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the answer"))
