"""Whether a change of the code leaves every output as it was, byte for byte.

    python benchmarks/unchanged.py record OUT.json [--data DIR] [--keep DIR] [--board DIR]
    python benchmarks/unchanged.py compare BEFORE.json AFTER.json

`record` runs the commands of ``unchanged.toml`` on phantom downloads of every style and on the real files of `--data`,
as far as they are there, and writes ``{"outputs": {step: {file or stream: sha256}}, "messages": {step: text}}``; a step
is a command after the name of the folder that it ran in. `compare` prints what differs, and exits with 1 if an output
does. Messages, which may be reworded, are printed and do not count.

Nothing is imported from the packages, which may be rebuilt inside: what is measured is the code that PYTHONPATH leads
the console commands to. `--keep` keeps all files of a recording, to look at two that differ. `--board` takes such a
folder: its board, made by the code of that recording, is opened, audited and served by the code at hand.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import unchanged_inputs as inputs  # the files beside this one
from unchanged_steps import ROOT, WHAT, Recording, Steps, dump, fetch, serving

BOARDS = ("chexlocalize", "reveal-cxr", "rexecution")
LANES = 4
"""Chains of steps side by side."""


def build_world(recording: Recording, style: str) -> None:
    """A phantom download and the dataset built from it."""
    steps, (phantom, build) = Steps(recording, style), WHAT["worlds"][style]
    steps.follow("world", style=style, phantom=phantom, build=build)
    if style in WHAT["steps"]:
        steps.follow(style)


def score_places(recording: Recording) -> None:
    """Scores, comparisons, ranks and misses of a localization benchmark, from every format."""
    steps = Steps(recording, "chexlocalize")
    data, mine, systems = (steps.folder / name for name in ("data", "mine", "systems"))
    inputs.predict_places(data, "released", steps.folder / "prior.jsonl", mine, seed=1)
    systems.mkdir()
    for path in (mine / "all.jsonl", mine / "points.csv", steps.folder / "prior.jsonl", steps.folder / "chance.jsonl"):
        shutil.copy(path, systems)
    steps.score_each("data")
    steps.follow("places")
    readers = "--readers readers.csv --images misses/for_readers"
    with serving(
        steps, f"readers --form errors --data errors --misses misses/for_readers/misses.jsonl {readers}", "/healthz"
    ) as url:
        for reader in ("Ada", "Bea"):
            judge(url, reader)
    steps.follow("misses")
    dump(steps, "errors/readings.sqlite", rows=False)


def judge(url: str, reader: str) -> None:
    """Answer a reader's whole list on the page for readers."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    def send(path: str, **fields: object) -> Any:
        head = {"Content-Type": "application/json", "Origin": url}
        request = urllib.request.Request(url + path, json.dumps(fields).encode() if fields else None, head)
        with opener.open(request, timeout=60) as answer:
            return json.loads(answer.read()) if "api/reader" not in path else None

    send("/api/reader", reader=reader)
    for item in send("/api/list")["items"]:
        finding = json.dumps(send(f"/api/items/{item['token']}")["panel"], sort_keys=True)
        answer = ("position_error", "anatomy_error")[inputs.hash_of(finding) % 2]
        key = hashlib.sha256((reader + item["token"]).encode()).hexdigest()[:32]
        send(f"/api/items/{item['token']}/answers", key=key, answer=answer, seconds=1.5)


def score_studies(recording: Recording) -> None:
    """Scores of a findings benchmark with strata and thresholds, and a file of answers to tasks."""
    steps, tasks = Steps(recording, "reveal-cxr"), Steps(recording, "rexecution")
    inputs.predict_labels(steps.folder / "data", "released", steps.folder / "mine", seed=2)
    steps.score_each("data")
    steps.follow("studies")
    inputs.answer_tasks(tasks.folder / "data", "holdout", tasks.folder / "answers", seed=3)
    tasks.follow("tasks")


RUNS = (
    ("chexlocalize", "--limit 40 --price-in 1.25 --price-out 10"),
    ("chexlocalize", "--limit 6 --prompt few-shot --shots-split validation --epochs 2 --grid 16"),
    ("chexlocalize", "--limit 12 --prompt chain-of-thought --answer point"),
    ("chexlocalize", "--limit 12 --answer box --side 300 --temperature none --model-seed 5"),
    ("reveal-cxr", "--limit 20 --prompt chain-of-thought"),
    ("rexecution", "--limit 12"),
)
"""Runs of the played model: the benchmark, and how it is asked."""


def ask_models(recording: Recording) -> None:
    """Prompts for models, and the scores of their replies."""
    steps = Steps(recording, "asking")
    with inputs.playing() as (url, asked):
        for number, (name, options) in enumerate(RUNS):
            command = f"run ../{name}/data --split released {options} --model played --endpoint {url} --out run{number}"
            steps.run(command)
            for path in sorted((steps.folder / f"run{number}").glob("*.json*")):
                steps.keep(f"asking: {command}", f"run{number}/{path.name}")
            steps.recording.note(f"asking: {command}", "requests", "\n".join(sorted(asked)))
            asked.clear()
    steps.follow("asked")
    inputs.log_lmms(steps.folder / "lmms", steps.folder / "20260101_samples_reveal_grid.jsonl")
    steps.run("import-lmms 20260101_samples_reveal_grid.jsonl --tasks lmms --model M --out from-lmms", "from-lmms")


def curate(recording: Recording) -> None:
    """Curations from reports to three versions of a benchmark, by rules and with a model."""
    steps = Steps(recording, "curation")
    cur, votes = steps.folder / "cur", steps.folder / "votes.csv"
    steps.follow("pool")
    inputs.cast_votes(cur, votes)
    steps.follow("halves")
    study = inputs.read_rows(cur / "split.parquet")[0]["study_id"]
    inputs.write_table(steps.folder / "corrections.csv", [{"study": study, "labels": "COPD", "why": "seen again"}])
    steps.follow("refreshed")
    inputs.cast_votes(steps.folder / "newer", votes)
    with inputs.playing() as (url, asked):
        steps.follow("later", url=url)
        recording.note("curation: asked", "requests", "\n".join(sorted(asked)))


def score_real(recording: Recording) -> None:
    """The README's way with the real files."""
    steps = Steps(recording, "real")
    (steps.folder / "studies").mkdir(exist_ok=True)
    for name, folder in (
        ("chestx_det/ChestX_Det_test.json", ""),
        ("nih/BBox_List_2017.csv.gz", ""),
        ("dicom/966_scrubbed.dcm", "studies"),
    ):
        shutil.copy(recording.data / name, steps.folder / folder)
    steps.follow("real")
    inputs.predict_places(steps.folder / "det", "released", steps.folder / "prior.jsonl", steps.folder / "mine", seed=4)
    steps.follow("real-scores")


def keep_board(recording: Recording) -> None:
    """A leaderboard of three benchmarks from its migrations to final figures, a refresh and a backup."""
    steps = Steps(recording, "board")
    steps.run("reveal-leaderboard migrate --data empty")
    dump(steps, "empty/leaderboard.sqlite", rows=False)
    (steps.folder / "vault").mkdir(mode=0o700)
    (steps.folder / "vault" / "salt").write_bytes(bytes(32))  # else random, and with it who is kept for final figures
    at = "--data server --settings settings.toml"
    serve = f"serve {at} " + " ".join(f"--benchmark ../{name}/data" for name in BOARDS)
    holdouts = " ".join(f"--holdout {name}=../{name}/private" for name in BOARDS)
    work = f"reveal-leaderboard worker {at} --once --vault vault {holdouts}"
    with serving(steps, serve, "/readyz") as url:
        sent = send_all(steps, url)
        steps.run(f"withdraw {sent[6]} --url {url}")
        steps.run(work)
        read_board(steps, url, "scored", sent)
        steps.run(f"reveal-leaderboard admin answers rexecution --out answers.csv {at}")
        inputs.rate_answers(steps.folder / "answers.csv", steps.folder / "ratings.csv")
        ids = dict(zip(("first", "second", "third", "fourth"), sent, strict=False))
        steps.follow("rated", work=work, url=url, **ids)
        compared = f"/api/v1/compare?a={sent[0]}&b={sent[1]}"
        recording.note("board: compared", compared, fetch(url + compared))
        read_board(steps, url, "rated", sent)
    with serving(steps, f"{serve} --benchmark ../chexlocalize/next", "/readyz") as url:
        steps.follow("refresh", work=work)
        read_board(steps, url, "refreshed", sent)
    steps.follow("records")
    dump(steps, "restored/leaderboard.sqlite", rows=True)
    exact = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in (steps.folder / "vault").glob("*.npz"))
    recording.note("board: refreshed", "exact rows in the vault", json.dumps(exact))


def send_all(steps: Steps, url: str) -> list[str]:
    """Send files to every board, each as another team; the ids of the submissions."""
    chex, cxr, tasks = (steps.folder.parent / name / "data" for name in BOARDS)
    inputs.predict_places(chex, "holdout", chex.parent / "prior-holdout.jsonl", steps.folder / "places", seed=6)
    inputs.predict_labels(cxr, "holdout", steps.folder / "labels", seed=7)
    inputs.answer_tasks(tasks, "holdout", steps.folder / "tasks", seed=8)
    files = {
        "chexlocalize": (
            "../chexlocalize/prior-holdout.jsonl",
            "places/all.jsonl",
            "places/masks.csv",
            "places/coco.json",
        ),
        "reveal-cxr": ("labels/labels.jsonl", "labels/table.csv", "labels/half.jsonl"),
        "rexecution": ("tasks/answers.jsonl",),
    }
    sent: list[str] = []
    for benchmark, path in ((benchmark, path) for benchmark, paths in files.items() for path in paths):
        team = f"Team {len(sent)}"
        about = {"model": {"name": f"Model of {team}", "version": "1"}, "organization": team, "kind": "cnn"}
        (steps.folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
        missing = " --allow-missing" if "half" in path else ""
        command = f"submit {path} --benchmark {benchmark} --url {url} --metadata about.json --no-wait --json{missing}"
        sent.append(json.loads(steps.run(command))["id"])
        steps.recording.known[sent[-1]] = f"<submission {len(sent)}>"
    return sent


def read_board(steps: Steps, url: str, when: str, sent: Sequence[str]) -> None:
    """Note every document of a board that is served."""
    paths = ["benchmarks", "keys", "me", "me/submissions", "openapi.json"]
    for name in BOARDS:
        paths += [f"leaderboard?benchmark={name}&format={form}" for form in ("json", "csv", "parquet")]
        paths += [f"benchmarks/{name}/manifest?format={form}" for form in ("json", "parquet")] + [
            f"me/ledger?benchmark={name}"
        ]
    paths += [f"submissions/{one}{what}" for one in sent for what in ("", "/events", "/receipt", "/receipt?part=final")]
    for path in paths:
        content: bytes | str = fetch(f"{url}/api/v1/{path}")
        if path == "openapi.json":  # addresses and the statuses of answers; the rest is prose and names of classes
            described = json.loads(content)["paths"]
            content = json.dumps(
                {p: {m: sorted(about["responses"]) for m, about in one.items()} for p, one in described.items()}
            )
        elif path.startswith("leaderboard") and path.endswith("parquet"):  # it holds times: hashed as text
            table = pq.read_table(pa.BufferReader(content))
            content = f"{table.schema.remove_metadata()}\n{json.dumps(table.to_pylist(), default=str)}"
        steps.recording.note(f"{steps.name}: {when}", path, content)


def old_board(recording: Recording, kept: Path) -> None:
    """Open and serve the board that another recording made, as it is."""
    steps = Steps(recording, "old-board")
    shutil.copytree(kept / "board" / "server", steps.folder / "server")
    shutil.copy(kept / "board" / "settings.toml", steps.folder)
    recording.known[str(kept)] = "<kept>"
    with sqlite3.connect(steps.folder / "server" / "leaderboard.sqlite") as connection:
        sent = [row[0] for row in connection.execute("SELECT id FROM submissions ORDER BY created_at")]
    steps.run("reveal-leaderboard migrate --data server")
    steps.run("reveal-leaderboard audit --data server --json")
    folders = [kept / name / "data" for name in BOARDS] + [kept / "chexlocalize" / "next"]
    options = " ".join(f"--benchmark {folder}" for folder in folders)
    with serving(steps, f"serve --data server --settings settings.toml {options}", "/readyz") as url:
        read_board(steps, url, "served", sent)


def mistakes(recording: Recording) -> None:
    """Commands and files that are refused."""
    steps, world = Steps(recording, "errors"), recording.root / "chexlocalize"
    inputs.predict_places(world / "data", "released", world / "prior.jsonl", steps.folder / "mine", seed=1)
    for path in sorted((ROOT / "submissions" / "examples").glob("*.jsonl")):
        shutil.copy(path, steps.folder)
        for name in BOARDS:
            steps.run(f"lint {path.name} ../{name}/data --json")
    for name in (Path(name).name for name in WHAT["files"] if name.startswith("errors/")):
        steps.run(f"lint {name} ../chexlocalize/data --json")
    steps.follow("mistakes")


def record(out: Path, data: Path, keep: Path | None, board: Path | None) -> None:
    """Run everything, some chains of steps side by side, and write what came out."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="unchanged-") as folder, ThreadPoolExecutor(LANES) as pool:
        root = keep or Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        recording = Recording(root.resolve(), data)
        worlds = [partial(build_world, recording, style) for style in WHAT["worlds"]]
        real = [partial(score_real, recording)] if (data / "chestx_det").is_dir() else []
        old = [partial(old_board, recording, board.resolve())] if board else []
        chains = [
            partial(chain, recording) for chain in (keep_board, score_places, ask_models, score_studies, mistakes)
        ]
        run_all(pool, [partial(curate, recording), *worlds, *real])
        run_all(pool, [*chains, *old])
    document = {"outputs": recording.outputs, "messages": recording.messages}
    out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    used, n = resource.getrusage(resource.RUSAGE_CHILDREN), sum(map(len, recording.outputs.values()))
    seconds = f"{time.monotonic() - began:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of processor time"
    print(f"{n} outputs of {len(recording.outputs)} steps in {seconds}: {out}")


def run_all(pool: ThreadPoolExecutor, chains: Sequence[Callable[[], None]]) -> None:
    for done in [pool.submit(chain) for chain in chains]:
        done.result()


def compare(before: Path, after: Path) -> int:
    """Print what differs; 1 if an output does."""
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    reworded: dict[str, list[str]] = {}
    for step in sorted(old["messages"].keys() & new["messages"].keys()):
        lines = [one["messages"][step].splitlines() for one in (old, new)]
        changed = [
            line
            for line in difflib.unified_diff(lines[0], lines[1], lineterm="", n=0)
            if line[:3] not in ("---", "+++", "@@ ")
        ]
        if changed:
            reworded.setdefault("\n".join(changed), []).append(step)
    for text, steps in reworded.items():
        print(f"message of {steps[0]}{f' and {len(steps) - 1} more' if len(steps) > 1 else ''}\n{text}")
    hashes = [
        {(step, name): value for step, outputs in one["outputs"].items() for name, value in outputs.items()}
        for one in (old, new)
    ]
    different = [key for key in sorted(hashes[0].keys() | hashes[1].keys()) if hashes[0].get(key) != hashes[1].get(key)]
    for key in different:
        state = "differs" if key in hashes[0] and key in hashes[1] else "is missing" if key in hashes[0] else "is new"
        print(f"{state}: {' | '.join(key)}")
    print(f"{len(reworded)} changes of messages; {len(different)} of {len(hashes[0])} outputs differ")
    return int(bool(different))


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether a change of the code leaves every output as it was.")
    commands = parser.add_subparsers(required=True, dest="command")
    recorder = commands.add_parser("record", help="run everything, and write the hashes")
    recorder.add_argument("out", type=Path)
    recorder.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="the real files")
    recorder.add_argument("--keep", type=Path, help="new folder for all that is made")
    recorder.add_argument("--board", type=Path, help="folder that another recording kept")
    comparer = commands.add_parser("compare", help="print what differs; exit code 1 if an output does")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return compare(arguments.before, arguments.after)
    record(arguments.out, arguments.data, arguments.keep, arguments.board)
    return 0


if __name__ == "__main__":
    sys.exit(main())
