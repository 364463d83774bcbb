"""A closed board ranks by the patients that the public scores exclude, over the same findings as before."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from reveal_leaderboard.cli import app
from reveal_leaderboard.release.release import release, split_final
from reveal_leaderboard.settings import ReleasePolicy
from reveal_leaderboard.worker.worker import open_holdouts
from typer.testing import CliRunner

from reveal_bench.exchange.receipts import verify_receipt
from reveal_bench.kinds.localization.formats import predictions_to_jsonl
from reveal_bench.kinds.localization.records import LocalizationPrediction
from tests.leaderboard.conftest import ACCEPTED, ASKING, BENCHMARK, METADATA, Board, Server, serve, wait_until
from tests.leaderboard.test_release_studies import ROWS

SETTINGS = f"""
[quota]
total = 9
per_day = 9
[release]
min_cell = 12
place_cell = 12
ladder_per = "model"
final_share = 0.5
n_resamples = 200
[exposure]
close_bits = 1000.0
{ACCEPTED}"""
LUCKY, BETTER = "Right on public", "Right on kept"


def right_on(board: Board, patients: Collection[str], path: Path) -> Path:
    """A file that points at the references of `patients`, and at the corner of all other images."""
    predictions = []
    for record in board.records:
        for one in record.annotations:
            x, y, width, height = one.bbox_xywh or (0, 0, 0, 0)
            centre = (x + width / 2, y + height / 2) if record.patient_id in patients else (1.0, 1.0)
            predictions.append(LocalizationPrediction(record.image_id, one.finding, points=(centre,)))
    path.write_text(predictions_to_jsonl(predictions), encoding="utf-8")
    return path


def board_of(server: Server) -> dict[str, Any]:
    """The board, once all of its entries are ranked."""

    def ranked() -> dict[str, Any] | None:
        board: dict[str, Any] = server.get(f"/api/v1/leaderboard?benchmark={BENCHMARK}").json()
        ranks = [entry["rank"] for entry in board["entries"]]
        return board if len(ranks) == 2 and None not in ranks else None

    board: dict[str, Any] = wait_until(ranked, pause=ASKING)
    return board


def macros(board: dict[str, Any], which: str) -> list[tuple[str, float]]:
    rows = ((entry["model"], figure) for entry in board["entries"] for figure in entry[which])
    return [(model, one["value"]) for model, one in rows if (one["metric"], one["finding"]) == ("point_hit", "macro")]


def test_the_kept_patients_decide_once_the_board_is_closed(board: Board, tmp_path: Path) -> None:
    vault, settings = tmp_path / "vault", tmp_path / "mine.toml"
    vault.mkdir(mode=0o700)
    settings.write_text(SETTINGS, encoding="utf-8")
    open_holdouts([(BENCHMARK, board.holdout)], shared=[], vault=vault)
    patients = {record.patient_id for record in board.records}
    kept = split_final(patients, (vault / "salt").read_bytes(), 0.5)
    options = ("--settings", str(settings))
    with serve(board, tmp_path, *options) as server, server.worker(*options, "--vault", str(vault)):
        ids = {}
        for name, group in ((LUCKY, patients - kept), (BETTER, kept)):
            file = right_on(board, group, tmp_path / f"{name}.jsonl")
            shared = {"share_predictions": True} if name == LUCKY else {"contact": "private@example.org"}
            ids[name] = server.post(file, METADATA | {"model": {"name": name}} | shared).json()["id"]
            server.wait_scored(ids[name])
        public = board_of(server)
        assert (public["ranked_part"], macros(public, "figures")) == ("public", [(LUCKY, 1.0), (BETTER, 0.0)])
        assert server.get(f"/api/v1/submissions/{ids[BETTER]}/receipt?part=final").status_code == 404
        assert {part for _, part, _ in exported(server, tmp_path / "before")[1]} == {"public"}
        assert {path.stem.rpartition("-")[2] for path in (tmp_path / "before" / "receipts").iterdir()} == {"public"}

        closing = ["admin", "set-board", BENCHMARK, "closed", "--why", "the round is over", "--data", str(server.data)]
        assert CliRunner().invoke(app, closing).exit_code == 0
        final = board_of(server)
        assert final["ranked_part"] == "final"
        assert [(one["model"], one["rank"], one["tier"]) for one in final["entries"]] == [
            (BETTER, 1, "A"),
            (LUCKY, 2, "B"),
        ]
        assert macros(final, "figures") == [(BETTER, 1.0), (LUCKY, 0.0)]
        assert macros(final, "public_figures") == [(BETTER, 0.0), (LUCKY, 1.0)]
        assert final["findings"] == public["findings"]
        assert final["hidden"] == public["hidden"]
        assert "Final ranks, since the round ended on 20" in final["notes"][0]

        where = f"/api/v1/leaderboard?benchmark={BENCHMARK}&format="
        table = pq.read_table(io.BytesIO(server.get(f"{where}parquet").content)).to_pylist()
        for row in (next(csv.DictReader(io.StringIO(server.get(f"{where}csv").text))), table[0]):
            shown = (row["model"], int(row["rank"]), float(row["value"]), float(row["public_value"]))
            assert (shown, row["ranked_part"]) == ((BETTER, 1, 1.0, 0.0), "final")
        page, entry = (server.get(path).text for path in ("/", f"/entry?id={ids[LUCKY]}"))
        assert f"<strong>{BETTER}</strong> by Example Laboratory leads" in page
        assert page.index(f"{BETTER}</a>") < page.index(f"{LUCKY}</a>")
        assert "Public macro hit rate" in page
        assert "<b>Rank 2</b> of 2" in entry
        assert "0%" in server.get(f"/badge/{ids[LUCKY]}.svg").text
        assert "100%" in server.get(f"/badge/{ids[BETTER]}.svg").text
        document = server.get(f"/api/v1/submissions/{ids[LUCKY]}").json()
        assert [document[name]["part"] for name in ("score", "public_score")] == ["final", "public"]
        receipt = verify_receipt(server.get(f"/api/v1/submissions/{ids[LUCKY]}/receipt").json()).receipt
        assert (receipt["part"], receipt["released"]["figures"][0]["value"]) == ("final", "0.0")
    holdout = ("--holdout", f"{BENCHMARK}={board.holdout}", "--vault", str(vault))
    refused = CliRunner().invoke(app, ["worker", "--data", str(server.data), *holdout])  # with the packaged settings
    assert refused.exit_code == 2
    said = " ".join(refused.output.replace("│", "").split())
    assert "`release.final_share` of chexlocalize 1.0.0 must stay 0.5, because its scores use it, got 0.0" in said

    ranks, figures = exported(server, tmp_path / "export")
    assert ranks == {BETTER: "1", LUCKY: "2"}
    assert set(figures) == {
        *((ids[BETTER], "final", 1.0), (ids[BETTER], "public", 0.0)),
        *((ids[LUCKY], "final", 0.0), (ids[LUCKY], "public", 1.0)),
    }
    names = [path.name for path in sorted((tmp_path / "export" / "receipts").iterdir())]
    version = final["version"]
    assert names == sorted(f"{one}-{version}-{part}.json" for one in ids.values() for part in ("public", "final"))
    for name in names:
        assert verify_receipt(json.loads((tmp_path / "export" / "receipts" / name).read_text())).receipt
    for table in (tmp_path / "export").glob("submissions.*"):
        assert table.read_bytes().count(b"private@example.org") >= 1  # in the column `contact`
    with (tmp_path / "export" / "submissions.csv").open(newline="", encoding="utf-8") as file:
        assert not any("private@example.org" in row["metadata"] for row in csv.DictReader(file))
    (copy,) = (tmp_path / "export" / "predictions").iterdir()
    assert (copy.name, copy.read_bytes()) == (f"{ids[LUCKY]}.jsonl", (tmp_path / f"{LUCKY}.jsonl").read_bytes())


def exported(server: Server, folder: Path) -> tuple[dict[str, str], list[tuple[str, str, float]]]:
    """Model -> rank, and (id, part, value) of every macro hit rate, as `admin export` writes them."""
    words = ["admin", "export", BENCHMARK, "--data", str(server.data), "--out", str(folder)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert CliRunner().invoke(app, words).exit_code == 1  # the folder exists now
    with (folder / "submissions.csv").open(newline="", encoding="utf-8") as file:
        ranks = {row["model"]: row["rank"] for row in csv.DictReader(file)}
    rows = pq.read_table(folder / "figures.parquet").to_pylist()
    macro = [row for row in rows if (row["metric"], row["finding"]) == ("point_hit", "macro")]
    return ranks, [(row["submission_id"], row["part"], row["value"]) for row in macro]


def test_a_finding_needs_enough_cases_in_both_parts() -> None:
    """Both parts show, and average, the labels that at least 10 studies of either part have and lack."""
    policy = ReleasePolicy(min_cell=10, bands=(10,), band_resolution=(0.1,), n_resamples=20)
    public = frozenset(np.random.default_rng(5).permutation(sorted(ROWS.patients()))[:100].tolist())
    parts = [ROWS.of_patients(public), ROWS.of_patients(ROWS.patients() - public)]
    n_with = [rows.present.sum(axis=0) for rows in parts]
    least = np.min([np.minimum(n, len(rows) - n) for n, rows in zip(n_with, parts, strict=True)], axis=0)
    shown = tuple(label for label, n in zip(ROWS.labels, least, strict=True) if n >= 10)
    hidden = tuple(label for label in ROWS.labels if label not in shown)
    assert hidden
    assert release(parts[0], policy).shown == ROWS.labels
    for rows, other in (parts, parts[::-1]):
        score = release(rows, policy, other=other)
        assert (score.shown, score.hidden) == (shown, hidden)
        assert score.figure("f1").n == str(len(shown))
        assert f": {', '.join(hidden)}." in score.note
