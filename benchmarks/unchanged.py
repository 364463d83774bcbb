"""Whether a change of the code leaves every output as it was, byte for byte.

    python benchmarks/unchanged.py record OUT.json [--data DIR] [--keep DIR] [--board DIR]
    python benchmarks/unchanged.py compare BEFORE.json AFTER.json

`record` runs the console commands on phantom downloads of every style, and on the real files of `--data` where they
are, and writes ``{"outputs": {step: {file or stream: sha256}}, "messages": {step: text}}``. A step is a command with
the folder that it ran in. `compare` prints what differs and exits with 1 if an output does; messages, which may be
reworded, are printed and do not count.

Nothing is imported from the packages, so that both may be rebuilt inside: whatever code PYTHONPATH leads the console
commands to is measured. `--keep` keeps the folder of the recording, to look at two files that differ, and `--board`
takes such a folder of another recording: its board is opened, audited and served by the code at hand.

What is not compared is :data:`LEFT_OUT`; what is random or depends on the clock is :data:`NORMALISED`.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import gzip
import hashlib
import json
import os
import random
import re
import shlex
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = Path(sys.executable).parent
EXAMPLES = ROOT / "submissions" / "examples"

LEFT_OUT = {
    "*.html": "pages are being redesigned",
    "*.svg": "figures are being redesigned",
    "*report*/*.png": "figures are being redesigned; pictures that models are shown stay in",
    "*.lock": "empty",
}
"""Pattern of a file's path -> why it is not compared."""
WORDS = ("*lmms/README.md", "*lmms/*.py")
"""Files that are prose or code for others: their texts are messages."""
NORMALISED = (
    # steps, pattern, replacement, why
    ("*", r"\b127\.0\.0\.1:\d+", "<address>", "a free port"),
)
"""Steps, what is not the same twice, what stands for it, and why."""
REWORDED = re.compile(r'"(message|hint)": "(?:[^"\\]|\\.)*"')
"""Sentences in JSON that a command prints: they are compared as part of its messages."""


class Recording:
    """What was hashed so far, and the folder that it lies in."""

    def __init__(self, root: Path, data: Path) -> None:
        self.root, self.data = root, data
        self.outputs: dict[str, dict[str, str]] = {}
        self.messages: dict[str, str] = {}
        self.known = {str(root): "<work>", str(ROOT): "<checkout>"}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("REVEAL_", "HF_"))}
        paths = [str(Path(one).resolve()) for one in kept.pop("PYTHONPATH", "").split(os.pathsep) if one]
        self.environment = kept | {
            "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "120", "NO_COLOR": "1", "TZ": "UTC",
            "HF_HOME": str(root / "hf"), "HF_HUB_OFFLINE": "1",
        }  # fmt: skip

    def plain(self, step: str, text: str) -> str:
        """The text without what is not the same twice."""
        for found, name in list(self.known.items()):
            text = text.replace(found, name)
        for steps, pattern, replacement, _ in NORMALISED:
            if fnmatch(step, steps):
                text = re.sub(pattern, replacement, text)
        return text

    def digest(self, step: str, content: bytes) -> str:
        """SHA-256 of what is the same twice."""
        try:
            content = self.plain(step, content.decode()).encode()
        except UnicodeDecodeError:
            pass  # pictures, Parquet, archives: as they are
        return hashlib.sha256(content).hexdigest()


class Steps:
    """Commands that run one after the other in a folder of their own."""

    def __init__(self, recording: Recording, name: str) -> None:
        self.recording, self.name, self.folder = recording, name, recording.root / name
        self.folder.mkdir(parents=True, exist_ok=True)

    def follow(self, script: str) -> None:
        """Run every line of a script: a command, and after `=>` the files and folders to hash."""
        for line in filter(None, map(str.strip, script.splitlines())):
            command, _, kept = line.partition("=>")
            self.run(command.strip(), *kept.split())

    def run(self, command: str, *kept: str) -> str:
        """Run a command and hash its exit code, its JSON and the files that it wrote; its standard output."""
        step, (program, *words) = f"{self.name}: {command}", shlex.split(command)
        if program not in ("reveal-bench", "reveal-leaderboard"):
            program, words = "reveal-bench", [program, *words]
        done = subprocess.run(
            [COMMANDS / program, *words], cwd=self.folder, env=self.recording.environment, stdin=subprocess.DEVNULL,
            capture_output=True, check=False,
        )  # fmt: skip
        said = (done.stdout + done.stderr).decode()
        step = self.recording.plain(step, step)
        if done.returncode and self.name != "errors":
            print(f"exit {done.returncode}: {step}\n{said}", file=sys.stderr)
        self.recording.outputs[step] = {"exit": str(done.returncode)}
        self.recording.messages[step] = self.recording.plain(step, said)
        if "--json" in words:
            self.note(step, "stdout", REWORDED.sub(r'"\1": "<words>"', done.stdout.decode()))
        for name in kept:
            self.keep(step, name)
        return done.stdout.decode()

    def keep(self, step: str, name: str) -> None:
        """Hash a file, or all files of a folder."""
        place = self.folder / name
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and not any(fnmatch(str(path), pattern) for pattern in LEFT_OUT):
                self.note(step, path.relative_to(self.folder).as_posix(), path.read_bytes())

    def note(self, step: str, name: str, content: bytes | str) -> None:
        """Hash the content of a file or of an answer; prose becomes a message."""
        content = content.encode() if isinstance(content, str) else content
        if any(fnmatch(name, pattern) for pattern in WORDS):
            self.recording.messages[f"{step} | {name}"] = content.decode()
        else:
            self.recording.outputs.setdefault(step, {})[name] = self.recording.digest(step, content)


# What is predicted, answered and voted here: any fixed function of the questions will do.


def questions(folder: Path, split: str) -> list[dict[str, Any]]:
    """The rows of a split's manifest."""
    rows: list[dict[str, Any]] = pq.read_table(folder / "manifest" / f"{split}.parquet").to_pylist()
    return rows


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_table(path: Path, rows: list[dict[str, Any]], separator: str = ",") -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)


def predict_places(folder: Path, split: str, priors: Path, out: Path, *, seed: int) -> None:
    """Predictions of a localization split in every format that is read, and in every form of a place."""
    rng, prior = random.Random(seed), [json.loads(line) for line in priors.read_text().splitlines()]
    masks = {(one["image_id"], one["finding"]): one["rle"] for one in prior}
    pairs, mixed = [], []
    for row in questions(folder, split):
        for finding in row["asked"]:
            w, h = row["width"], row["height"]
            x, y = rng.randrange(w // 2), rng.randrange(h // 2)
            box = [x, y, rng.randrange(8, w // 2), rng.randrange(8, h // 2)]
            corners = [[x, y], [x + box[2], y], [x + box[2], y + box[3]], [x, y + box[3]]]
            one = {"image_id": row["image_id"], "finding": finding, "score": round(rng.random(), 3)}
            forms = {
                "point": [x + 0.5, y], "points": [[x, y], [w - 1, h - 1]], "cell": rng.choice("ABCDEFGH") + str(y % 8 + 1),
                "box": box, "polygons": [corners], "rle": masks[row["image_id"], finding],
            }  # fmt: skip
            pairs.append((one, forms, [h, w]))
            form = list(forms)[len(mixed) % len(forms)]
            mixed.append({**one, form: forms[form]})
    out.mkdir()
    write_lines(out / "mixed.jsonl", mixed)
    write_lines(out / "half.jsonl", mixed[::2])
    write_lines(out / "all.jsonl", [{**one, **{k: v for k, v in forms.items() if k != "points"}} for one, forms, _ in pairs])
    with gzip.GzipFile(out / "mixed.jsonl.gz", "wb", mtime=0) as packed:
        packed.write((out / "mixed.jsonl").read_bytes())
    with pa.CompressedOutputStream(str(out / "mixed.jsonl.zst"), "zstd") as packed:
        packed.write((out / "mixed.jsonl").read_bytes())
    boxes = [{**one, **dict(zip(("x", "y", "width", "height"), forms["box"], strict=True))} for one, forms, _ in pairs]
    write_table(out / "points.csv", [{k: v for k, v in one.items() if k not in ("width", "height")} for one in boxes])
    write_table(out / "boxes.tsv", boxes, "\t")
    pq.write_table(pa.Table.from_pylist(boxes), out / "boxes.parquet")
    write_table(out / "cells.csv", [{**one, "cell": forms["cell"]} for one, forms, _ in pairs])
    masked = [{**one, "size_h": size[0], "size_w": size[1], "counts": forms["rle"]["counts"]} for one, forms, size in pairs]
    write_table(out / "masks.csv", masked)
    for name, form in (("segmentations", "rle"), ("salient", "points"), ("annotations", "polygons")):
        document: dict[str, dict[str, Any]] = {}
        for one, forms, size in pairs:
            head = {"img_size": size} if form == "polygons" else {}
            document.setdefault(one["image_id"], head)[one["finding"]] = forms[form]
        (out / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    coco = [
        {"image_id": one["image_id"], "category_id": one["finding"], "score": one["score"], "bbox": forms["box"]}
        for one, forms, _ in pairs
    ]
    (out / "coco.json").write_text(json.dumps(coco), encoding="utf-8")


def predict_labels(folder: Path, split: str, out: Path, *, seed: int) -> None:
    """Predictions of a findings split: labels, probabilities, and these as tables."""
    rng, studies = random.Random(seed), [row["study_id"] for row in questions(folder, split)]
    labels = json.loads((folder / "manifest" / "benchmark.json").read_text())["findings"]
    given = {study: {label: round(rng.random(), 3) for label in labels} for study in studies}
    out.mkdir()
    write_lines(out / "labels.jsonl", [{"study_id": s, "labels": [k for k in p if p[k] > 0.6]} for s, p in given.items()])
    write_lines(out / "probabilities.jsonl", [{"study_id": s, "probabilities": p} for s, p in given.items()])
    write_lines(out / "half.jsonl", [{"study_id": s, "probabilities": p} for s, p in list(given.items())[::2]])
    write_table(out / "probabilities.csv", [{"study_id": s, **p} for s, p in given.items()])
    write_table(out / "probabilities.tsv", [{"study_id": s, **p} for s, p in given.items()], "\t")
    thresholds = {label: round(rng.random(), 2) for label in labels}
    (out / "thresholds.json").write_text(json.dumps({"thresholds": thresholds}), encoding="utf-8")


def answer_tasks(folder: Path, split: str, out: Path, *, seed: int) -> None:
    """Answers to a split of tasks, every other one with a box."""
    rng, lines = random.Random(seed), []
    for number, row in enumerate(questions(folder, split)):
        box = {"image_id": row["image_ids"][0], "label": "opacity", "box": [1, 2, rng.randrange(3, 20), 9]}
        lines.append({"task_id": row["task_id"], "answer": f"Answer {rng.random():.6f}.", "boxes": [box] * (number % 2)})
    out.mkdir()
    write_lines(out / "answers.jsonl", lines)


def vote(folder: Path) -> None:
    """The readers' votes on a curation's assignments."""
    rng, rows = random.Random(5), []
    for one in pq.read_table(folder / "assignments.parquet").to_pylist():
        answer, comment, labels = rng.choices(
            [("Agree All", "", ""), ("Agree Mostly", "No pneumothorax.", ""), ("Disagree", "", "Cardiomegaly; COPD")],
            [8, 1, 1],
        )[0]
        head = {"study": one["study_id"], "reader": one["reader"]}
        rows.append({**head, "answer": answer, "comment": comment, "labels": labels})
    write_table(folder.parent / "votes.csv", rows)


class Played(BaseHTTPRequestHandler):
    """A model behind an API whose replies depend on the request alone."""

    asked: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(json.dumps(json.loads(body), sort_keys=True))
        usage = {"prompt_tokens": len(body) % 997, "completion_tokens": 7, "total_tokens": len(body) % 997 + 7}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply(json.loads(body))}}
        document = {"id": "1", "object": "chat.completion", "created": 0, "model": "played", "choices": [choice]}
        sent = json.dumps(document | {"usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def reply(body: dict[str, Any]) -> str:
    """What the model says: to a curation's questions JSON, to others an answer, a refusal or nothing of use."""
    last = body["messages"][-1]["content"]
    rng = random.Random(json.dumps(last))
    task = body.get("response_format", {}).get("json_schema", {}).get("name")
    if task == "findings":
        return json.dumps({"findings": [{"finding": "cardiomegaly", "side": None, "icd10": "I51.7"}] * rng.randrange(2)})
    if task == "labels":
        names = json.loads(last)
        return json.dumps({"key_findings": names, "benchmark_labels": [rng.choice(["COPD", "None"]) for _ in names]})
    if task == "labelled_findings":
        return json.dumps({"key_findings": ["copd"], "benchmark_labels": [rng.choice(["COPD", "None"])]})
    if task == "note":
        return json.dumps({"revised_labels": rng.choice([["COPD"], [], ["NA"]]), "reason": "So the note."})
    if rng.random() < 0.15:
        return rng.choice(["I can't help with interpreting medical images.", "", "It is hard to say."])
    text = " ".join(part["text"] for part in last if part["type"] == "text")
    words = re.findall(r'the word "(\w+)"', text)
    numbers = [rng.randrange(10, 120) for _ in range(4)]
    return {
        "Cell": f"Cell: {rng.choice('ABCDEFGH')}{rng.randrange(1, 9)}",
        "Point": "Point: {}, {}".format(*numbers),
        "Box": "Box: {}, {}, {}, {}".format(*numbers),
        "Findings": f"Findings: {rng.choice(['none', 'Cardiomegaly', 'COPD, Pneumothorax'])}",
    }.get(words[-1] if words else "", 'An opacity. ```json\n{"boxes": [{"image": 1, "label": "opacity", "x": 5, "y": 6, "w": 7, "h": 8}]}\n```')


@contextmanager
def playing() -> Iterator[tuple[str, list[str]]]:
    """Serve the played model; its address, and the requests that it gets."""
    handler = type("Handler", (Played,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", handler.asked  # type: ignore[attr-defined]
        server.shutdown()


# The chains of steps. Those of WORLDS come first, the others use what they built.

KEYED = "--id-key key"
WORLDS = {
    "chexlocalize": (80, "--long-side 200 --val-images 20 --anatomy organs.jsonl", ""),
    "reveal-cxr": (110, "--long-side 160", f"--source reveal-cxr {KEYED}"),
    "rexecution": (40, "--long-side 160", ""),
    "midrc": (16, "--long-side 160", f"--source midrc {KEYED}"),
    "chestx-det": (16, "", ""),
    "nih-boxes": (12, "", ""),
    "ms-cxr": (16, "--long-side 160", "--pictures download/pictures"),
    "vindr-cxr": (16, "--long-side 160", "--keep-going"),
    "vinbigdata": (16, "--long-side 160", "--keep-going --holdout-split train"),
    "rsna-pneumonia": (12, "", ""),
    "siim-acr": (12, "", ""),
    "padchest-gr": (24, "--long-side 160", ""),
}
"""Style of the phantom -> its images, further options, and those of its build."""


def build_world(recording: Recording, style: str) -> None:
    """A phantom download, and what is built of it: with pictures, and without."""
    images, options, how = WORLDS[style]
    steps = Steps(recording, style)
    write_key(steps.folder)
    steps.follow(f"""
        phantom download --style {style} --images {images} --seed 3 {options} => download
        inspect download
        build download --out data --holdout private --seed 7 --workers 2 --log log.jsonl {how} => data private log.jsonl
        validate data --holdout private --json --no-load
        report data
        build download --out bare --images withhold --asks all --version 2.1.0 {how} => bare
        attach bare download --out attached --keep-going => attached
    """)


def write_key(folder: Path) -> None:
    (folder / "key").write_text("07" * 32)
    (folder / "key").chmod(0o600)


def score_places(recording: Recording) -> None:
    """Scores, comparisons and ranks of a localization benchmark, from every format; the versions of its folder."""
    steps = Steps(recording, "chexlocalize")
    steps.follow("""
        baseline location-prior data --split released --out prior.jsonl => prior.jsonl
        baseline location-prior data --split holdout --out prior-holdout.jsonl => prior-holdout.jsonl
        baseline chance data --split released --out chance.jsonl --seed 4 => chance.jsonl
    """)
    predict_places(steps.folder / "data", "released", steps.folder / "prior.jsonl", steps.folder / "mine", seed=1)
    for path in sorted((steps.folder / "mine").iterdir()):
        missing = "--allow-missing" if path.stem == "half" else ""
        steps.run(f"score mine/{path.name} data --json --rows rows.parquet --resamples 200 {missing}", "rows.parquet")
        steps.run(f"lint mine/{path.name} data --split released --json")
    steps.follow("""
        score prior.jsonl data
        score mine/all.jsonl data --json
        score mine/all.jsonl data --json --interval bca
        score mine/all.jsonl data --json --interval chexlocalize
        score mine/all.jsonl data --json --unit image --seed 3
        score mine/points.csv data --json --grid 16 --rows rows.parquet => rows.parquet
        score private/../prior-holdout.jsonl private --split holdout --json
        baseline chance bare --split test --out chance-all.jsonl => chance-all.jsonl
        score chance-all.jsonl bare --split test --json --rows rows.parquet => rows.parquet
        lint prior-holdout.jsonl data --json
        compare mine/all.jsonl prior.jsonl data --json
        compare mine/all.jsonl prior.jsonl data --json --relative --metric mask_iou
        compare mine/mixed.jsonl chance.jsonl data --json --unit image --seed 2 --resamples 300
        compare mine/all.jsonl prior.jsonl data
        misses A=mine/all.jsonl B=prior.jsonl --folder data --split released --anatomy organs.jsonl --out misses => misses
        report A=mine/all.jsonl prior.jsonl chance.jsonl --folder data --split released --anatomy organs.jsonl --out report => report
        publish data org/name --holdout private --dry-run
        publish private org/name --dry-run
        build download --out next --holdout next-private --version 1.1.0 --previous data --previous-holdout private --seed 9 => next next-private
        diff data next --json
        diff data next --holdout-before private --holdout-after next-private --json
    """)
    systems = steps.folder / "systems"
    systems.mkdir()
    for name in ("mine/all.jsonl", "mine/points.csv", "prior.jsonl", "chance.jsonl"):
        shutil.copy(steps.folder / name, systems)
    steps.follow("""
        rank systems data --json
        rank systems data --json --metric grid_hit --unit image --resamples 500
        rank systems data
    """)


def score_studies(recording: Recording) -> None:
    """Scores of a findings benchmark, strata and thresholds included, and of a tasks benchmark's files."""
    steps = Steps(recording, "reveal-cxr")
    predict_labels(steps.folder / "data", "released", steps.folder / "mine", seed=2)
    for name in ("labels.jsonl", "probabilities.jsonl", "probabilities.csv", "probabilities.tsv", "half.jsonl"):
        missing = "--allow-missing" if name == "half.jsonl" else ""
        steps.run(f"score mine/{name} data --json --rows rows.parquet --resamples 300 {missing}", "rows.parquet")
        steps.run(f"lint mine/{name} data --split released --json")
    steps.follow("""
        score mine/probabilities.jsonl data --metadata mine/thresholds.json --json --seed 6
        score mine/labels.jsonl data
        publish data org/name --holdout private --dry-run
        diff data data --json
    """)
    tasks = Steps(recording, "rexecution")
    answer_tasks(tasks.folder / "data", "holdout", tasks.folder / "mine", seed=3)
    tasks.follow("""
        lint mine/answers.jsonl data --json
        lint mine/answers.jsonl data
        publish data org/name --holdout private --dry-run
    """)


def ask_models(recording: Recording) -> None:
    """What models are shown and told, and what is made of their replies."""
    folders = {name: f"../{name}/data" for name in ("chexlocalize", "reveal-cxr", "rexecution")}
    steps = Steps(recording, "asking")
    with playing() as (url, asked):
        for number, (name, options) in enumerate((
            ("chexlocalize", "--price-in 1.25 --price-out 10"),
            ("chexlocalize", "--prompt few-shot --shots-split validation --epochs 2 --grid 16 --limit 6"),
            ("chexlocalize", "--prompt chain-of-thought --answer point --limit 12"),
            ("chexlocalize", "--answer box --side 300 --limit 12 --temperature none --model-seed 5"),
            ("reveal-cxr", "--limit 20"),
            ("reveal-cxr", "--prompt chain-of-thought --limit 8"),
            ("rexecution", "--limit 12"),
        )):  # fmt: skip
            run = f"run {folders[name]} --split released {options} --model played --endpoint {url} --out run{number}"
            steps.run(run, *(f"run{number}/{one}" for one in ("run.json", "transcript.jsonl", "summary.json", "submission.json")))
            steps.note(f"asking: run{number}", "requests", "\n".join(sorted(asked)))
            asked.clear()
            for path in sorted(steps.folder.glob(f"run{number}/predictions*.jsonl")):
                steps.keep(f"asking: run{number}", f"run{number}/{path.name}")
            steps.run(f"import-inspect run{number}/logs --out imported{number}", f"imported{number}")
    steps.follow(f"""
        score run0/predictions.jsonl {folders["chexlocalize"]} --allow-missing --json
        score run4/predictions.jsonl {folders["reveal-cxr"]} --allow-missing --json
        report Played=run0 Few=run1 --folder {folders["chexlocalize"]} --out report => report
        run {folders["chexlocalize"]} --split holdout --limit 5 --dry-run look => look
        export-lmms {folders["chexlocalize"]} --split released --prompt few-shot --limit 6 --out lmms => lmms
        export-lmms {folders["reveal-cxr"]} --split released --limit 4 --out labels-lmms => labels-lmms
        export-lmms {folders["rexecution"]} --split released --limit 4 --out text-lmms => text-lmms
    """)
    samples = [
        {
            "target": f"{row['sent']} {row['id']}", "filtered_resps": [f"Cell: {'ABCDEF'[i]}3"], "token_counts": [None],
            "reveal": {"replies": ["answered"], "lmms_eval": "0.7.3"},
        }
        for i, row in enumerate(pq.read_table(steps.folder / "lmms" / "questions.parquet").to_pylist())
    ]  # fmt: skip
    write_lines(steps.folder / "20260101_000000_samples_reveal_grid.jsonl", samples)
    steps.run("import-lmms 20260101_000000_samples_reveal_grid.jsonl --tasks lmms --model M --out from-lmms", "from-lmms")


def curate(recording: Recording) -> None:
    """A curation from reports to two versions of a dataset, by rules and with a model."""
    steps = Steps(recording, "curation")
    write_key(steps.folder)
    steps.follow("""
        phantom pool --style reveal-pool --images 120 --seed 3 --long-side 128 => pool
        curate extract cur --reports pool/reports.csv --seed 7 => cur
        curate sample cur --strata 1:40,2:24,3:8 --fill => cur
        curate assign cur --readers pool/readers.csv => cur
    """)
    vote(steps.folder / "cur")
    steps.follow("""
        curate import-votes cur --votes votes.csv => cur
        curate consensus cur --resamples 200 => cur
        curate select cur --target 40 => cur
        curate split cur --facts pool/facts.csv --best-of 5 => cur
        curate report cur => cur/report
        curate status cur --json
        curate extract told --suggestions pool/suggested.csv --seed 8 => told
        curate sample told --strata 1:10,2:6 --min-per-label 0 => told
        build pool/films --source reveal-cxr --mapping cur/benchmark/mapping.yaml --id-key key --out data --holdout private => data private
        validate data --holdout private --json
    """)
    first = pq.read_table(steps.folder / "cur" / "split.parquet").to_pylist()[0]["study_id"]
    write_table(steps.folder / "corrections.csv", [{"study": first, "labels": "COPD", "why": "seen again"}])
    steps.follow("""
        curate refresh next --before cur --corrections corrections.csv => next
        curate report next => next/report
        build pool/films --source reveal-cxr --mapping next/benchmark/mapping.yaml --id-key key --out data-next --holdout private-next --version 1.1.0 --previous data --previous-holdout private => data-next private-next
        diff data data-next --holdout-before private --holdout-after private-next --json
        curate extract newer --reports pool/reports.csv --seed 9
        curate sample newer --strata 1:16,2:10 --fill
        curate assign newer --readers pool/readers.csv
    """)
    vote(steps.folder / "newer")
    steps.follow("""
        curate import-votes newer --votes votes.csv
        curate consensus newer --three --resamples 100 => newer
        curate select newer --target 12 => newer
        curate refresh later --before cur --additions newer --facts pool/facts.csv --retire-holdout => later
    """)
    with playing() as (url, asked):
        model = f"--model played --endpoint {url} --price-in 1 --price-out 2"
        steps.run(f"curate extract asked --reports pool/reports.csv --seed 7 {model}", "asked")
        steps.run(f"curate extract once --reports pool/reports.csv --seed 7 --calls one {model}", "once")
        steps.run(f"curate consensus cur --redo --resamples 100 {model}", "cur")
        steps.note("curation: asked", "requests", "\n".join(sorted(asked)))


def real_data(recording: Recording) -> None:
    """The README's way with the real files, as far as they are here."""
    steps = Steps(recording, "real")
    boxes, det = recording.data / "nih" / "BBox_List_2017.csv.gz", recording.data / "chestx_det" / "ChestX_Det_test.json"
    for path in filter(Path.is_file, (boxes, det)):
        shutil.copy(path, steps.folder)
    if det.is_file():
        steps.follow("""
            inspect ChestX_Det_test.json
            build ChestX_Det_test.json --images withhold --out det --holdout private/det --seed 7 => det private
            validate det --holdout private/det --json
            report det
            baseline location-prior det --split released --out prior.jsonl => prior.jsonl
            baseline location-prior det --split holdout --out prior-holdout.jsonl => prior-holdout.jsonl
            score prior.jsonl det --split released --json --rows rows.parquet => rows.parquet
            score prior.jsonl det --split released --json --interval bca --unit image
            score prior.jsonl det --split released
            score prior-holdout.jsonl private/det --split holdout --json
            lint prior-holdout.jsonl det --json
        """)
        predict_places(steps.folder / "det", "released", steps.folder / "prior.jsonl", steps.folder / "mine", seed=4)
        steps.follow("""
            score mine/mixed.jsonl det --json --rows rows.parquet => rows.parquet
            compare mine/all.jsonl prior.jsonl det --json
            rank mine det --json --allow-missing --resamples 200
            report prior.jsonl mine/all.jsonl --folder det --split released --out report => report
        """)
    if boxes.is_file():
        steps.run("build BBox_List_2017.csv.gz --images withhold --out nih --holdout private/nih", "nih", "private/nih")
    dicom = recording.data / "dicom" / "966_scrubbed.dcm"
    if dicom.is_file():
        write_key(steps.folder)
        (steps.folder / "studies").mkdir()
        shutil.copy(dicom, steps.folder / "studies")
        study = {"uid": "1.2.392.200046.100.2.1.97028794843.150131102105", "findings": "COPD|Lung mass"}
        write_table(steps.folder / "studies" / "labels.csv", [study])
        (steps.folder / "studies" / "mapping.yaml").write_text(
            "table: labels.csv\nstudy_key: {column: uid}\nlabels: {list: {column: findings, separator: '|'}}\n"
            "demographics: {age: {from: header}, sex: {from: header}}\n"
        )
        steps.follow("""
            inspect studies
            build studies --source reveal-cxr --id-key key --out film => film
        """)


SETTINGS = """
[release]
min_cell = 10
bands = [10, 20, 40]
n_resamples = 200
final_share = 0.2
[quota]
total = 20
per_day = 20
[reading]
readers_per_answer = 1
[benchmarks.chexlocalize.about]
citation = "None"
"""
BOARDS = {"chexlocalize": "1.0.0", "reveal-cxr": "1.0.0", "rexecution": "1.0.0"}


@contextmanager
def serving(steps: Steps, command: str, health: str) -> Iterator[str]:
    """Run a server until the block ends; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url, words = f"http://127.0.0.1:{port}", [COMMANDS / "reveal-leaderboard", *shlex.split(command), "--port", str(port)]
    with (steps.folder / "server.log").open("ab") as log:
        server = subprocess.Popen(words, cwd=steps.folder, env=steps.recording.environment, stdout=log, stderr=log)
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(url + health, timeout=5).close()
                    break
                except OSError:
                    if server.poll() is not None:
                        raise RuntimeError((steps.folder / "server.log").read_text()) from None
                    time.sleep(0.1)
            yield url
        finally:
            server.terminate()
            server.wait()


def read_board(steps: Steps, url: str, when: str, submissions: list[str]) -> None:
    """Every document of a board that is served."""
    paths = ["/api/v1/benchmarks", "/api/v1/keys", "/api/v1/me", "/api/v1/me/submissions"]
    for name in BOARDS:
        paths += [f"/api/v1/leaderboard?benchmark={name}&format={form}" for form in ("json", "csv", "parquet")]
        paths += [f"/api/v1/benchmarks/{name}/manifest?format={form}" for form in ("json", "parquet")]
        paths += [f"/api/v1/me/ledger?benchmark={name}"]
    for one in submissions:
        paths += [f"/api/v1/submissions/{one}{what}" for what in ("", "/events", "/receipt", "/receipt?part=final")]
    for path in paths:
        try:
            with urllib.request.urlopen(url + path, timeout=60) as answer:
                content = answer.read()
        except urllib.error.HTTPError as refusal:
            content = f"{refusal.code}"
        if path.endswith("=parquet") and "leaderboard" in path:
            table = pq.read_table(pa.BufferReader(content))
            content = f"{table.schema.remove_metadata()} {json.dumps(table.to_pylist(), default=str)}"
        steps.note(f"{steps.name}: {when}", steps.recording.plain(steps.name + ":", path), content)
    with urllib.request.urlopen(url + "/api/v1/openapi.json", timeout=60) as answer:
        described = json.load(answer)["paths"]
    routes = {p: {m: sorted(about["responses"]) for m, about in one.items()} for p, one in described.items()}
    steps.note(f"{steps.name}: {when}", "routes", json.dumps(routes, sort_keys=True))


def dump(steps: Steps, step: str, database: str, *, rows: bool) -> None:
    """The schema of a SQLite database, and what its tables hold."""
    with sqlite3.connect(f"file:{steps.folder / database}?mode=ro", uri=True) as connection:
        made = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name").fetchall()
        steps.note(step, f"{database} schema", "\n".join(sql for _, sql in made))
        for name in sorted(name for name, sql in made if rows and sql.startswith("CREATE TABLE")):
            found = connection.execute(f'SELECT * FROM "{name}" ORDER BY rowid')
            columns = [about[0] for about in found.description]
            told = [{c: nested(v) for c, v in zip(columns, row, strict=True)} for row in found]
            steps.note(step, f"{database} {name}", json.dumps(told, indent=1, sort_keys=True))


def nested(value: object) -> object:
    """A cell of a database, JSON opened."""
    return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def keep_board(recording: Recording) -> None:
    """A leaderboard of three benchmarks from the first upload to final figures."""
    steps = Steps(recording, "board")
    steps.run("reveal-leaderboard migrate --data empty")
    dump(steps, "board: migrated", "empty/leaderboard.sqlite", rows=False)
    worlds = {name: f"../{name}" for name in BOARDS}
    (steps.folder / "settings.toml").write_text(SETTINGS)
    (steps.folder / "vault").mkdir(mode=0o700)
    (steps.folder / "vault" / "salt").write_bytes(bytes(32))  # else random, and with it who is kept for final figures
    at = "--data server --settings settings.toml"
    serve = f"serve {at}" + "".join(f" --benchmark {world}/data" for world in worlds.values())
    work = f"reveal-leaderboard worker {at} --once --vault vault" + "".join(
        f" --holdout {name}={world}/private" for name, world in worlds.items()
    )
    sent: list[str] = []
    with serving(steps, serve, "/readyz") as url:
        send_all(steps, url, sent)
        steps.run(f"withdraw {sent[-2]} --url {url}")
        steps.run(work)
        read_board(steps, url, "scored", sent)
        rate(steps, at)
        steps.run(work)
        steps.run(f"withdraw {sent[3]} --url {url} --yes")
        steps.follow(f"""
            reveal-leaderboard admin hide {sent[4]} --why "a trial" --data server
            reveal-leaderboard admin restore {sent[4]} --why "it was" --data server
            reveal-leaderboard admin grant "Team 1" chexlocalize 2 --why "an outage" --data server
            reveal-leaderboard admin set-team "Team 2" --closed --why "a trial" --data server
            reveal-leaderboard admin set-board reveal-cxr paused --why "a trial" --data server
            reveal-leaderboard admin boards --data server
            reveal-leaderboard admin people --data server
            reveal-leaderboard admin flags --data server
            reveal-leaderboard admin tokens --data server
            reveal-leaderboard admin exposure chexlocalize {at}
            receipt {sent[0]} --url {url} --out receipt.json => receipt.json
            receipt {sent[1]} --url {url} --out second.json
            verify-receipt second.json --previous receipt.json --file ../chexlocalize/prior-holdout.jsonl
            verify-receipt receipt.json --file ../chexlocalize/prior-holdout.jsonl
        """)
        compare = f"{url}/api/v1/compare?a={sent[0]}&b={sent[1]}"
        urllib.request.urlopen(compare, timeout=60).close()
        steps.run(work)
        with urllib.request.urlopen(compare, timeout=60) as answer:
            steps.note("board: compared", "compare", answer.read())
        read_board(steps, url, "read", sent)
    with serving(steps, f"{serve} --benchmark ../chexlocalize/next", "/readyz") as url:
        steps.follow(f"""
            reveal-leaderboard admin refresh chexlocalize --to 1.1.0 --data server
            {work} --holdout chexlocalize=../chexlocalize/next-private
            reveal-leaderboard admin refresh chexlocalize --to 1.1.0 --switch --data server
            reveal-leaderboard admin set-board chexlocalize closed --why "the end" --data server
            reveal-leaderboard admin rotate-receipt-key --vault vault
            {work} --holdout chexlocalize=../chexlocalize/next-private
        """)
        read_board(steps, url, "closed", sent)
    steps.follow("""
        reveal-leaderboard audit --data server --json
        reveal-leaderboard backup copy --data server
        reveal-leaderboard restore copy --data restored
        reveal-leaderboard admin orphans --data restored
    """)
    dump(steps, "board: restored", "restored/leaderboard.sqlite", rows=True)
    exact = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in (steps.folder / "vault").glob("*.npz"))
    steps.note("board: closed", "vault", json.dumps(exact))


def send_all(steps: Steps, url: str, sent: list[str]) -> None:
    """Send files for every board, each as another team; their ids are noted in `sent`."""
    chex, cxr, tasks = (steps.folder.parent / name for name in BOARDS)
    predict_places(chex / "data", "holdout", chex / "prior-holdout.jsonl", steps.folder / "places", seed=6)
    predict_labels(cxr / "data", "holdout", steps.folder / "labels", seed=7)
    files = [
        ("chexlocalize", chex / "prior-holdout.jsonl"), *(("chexlocalize", steps.folder / "places" / name) for name in
        ("all.jsonl", "masks.csv", "points.csv", "coco.json")), ("reveal-cxr", steps.folder / "labels" / "labels.jsonl"),
        ("reveal-cxr", steps.folder / "labels" / "probabilities.csv"), ("reveal-cxr", steps.folder / "labels" / "half.jsonl"),
        ("rexecution", tasks / "mine" / "answers.jsonl"),
    ]  # fmt: skip
    for number, (benchmark, path) in enumerate(files):
        about = {"model": {"name": f"Model {number}", "version": "1"}, "organization": f"Team {number}", "kind": "cnn"}
        (steps.folder / f"{number}.json").write_text(json.dumps(about))
        name = os.path.relpath(path, steps.folder)
        missing = "--allow-missing" if "half" in name else ""
        said = steps.run(
            f"submit {name} --benchmark {benchmark} --url {url} --metadata {number}.json --no-wait --json {missing}"
        )
        sent.append(json.loads(said)["id"])
        steps.recording.known[sent[-1]] = f"<submission {number}>"


def rate(steps: Steps, at: str) -> None:
    """Fill and take in the file of answers that wait for readers."""
    steps.run(f"reveal-leaderboard admin answers rexecution --out answers.csv {at}")
    with (steps.folder / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    criteria = ("process", "execution", "synthesis", "language", "image_content", "image_style")
    for row in sorted(rows, key=lambda row: row["answer"]):
        has_boxes = bool(json.loads(row["boxes"]))
        for number, name in enumerate(criteria):
            row[name] = str(1 + (len(row["task_id"]) + number) % 5) if number < 4 or has_boxes else ""
        row["reader"] = "Reader A"
    write_table(steps.folder / "ratings.csv", rows)
    steps.run(f"reveal-leaderboard admin ratings ratings.csv {at}")


BAD_FILES = {
    "empty.jsonl": "",
    "broken.jsonl": '{"image_id": "a", "finding": ',
    "unknown.jsonl": '{"image_id": "nobody", "finding": "Edema", "point": [1, 2]}\n{"image_id": "a", "findin": "Edema"}\n',
    "outside.csv": "image_id,finding,x,y\na,Edema,-1,NaN\na,Edema,1e999,abc\n",
    "columns.csv": "image,finding,x\n",
    "twice.json": '[{"image_id": 1, "category_id": 99, "bbox": [1, 2, 3]}, 7]',
    "mapping.yaml": "table: nowhere.csv\nlabels: {list: 7}\n",
    "notes.txt": "%PDF-1.4",
    "receipt.json": '{"receipt": {"schema": "other"}, "hash": "", "signature": ""}',
}


def mistakes(recording: Recording) -> None:
    """Commands that are refused."""
    steps = Steps(recording, "errors")
    for name, text in BAD_FILES.items():
        (steps.folder / name).write_text(text, encoding="utf-8")
    for name in sorted(name for name in BAD_FILES if name.endswith((".jsonl", ".csv", ".json"))):
        steps.run(f"lint {name} ../chexlocalize/data --json")
    for path in sorted(EXAMPLES.glob("*.jsonl")):
        shutil.copy(path, steps.folder / f"example-{path.name}")
        for world in BOARDS:
            steps.run(f"lint example-{path.name} ../{world}/data --json")
    steps.follow("""
        phantom ../chexlocalize/download --style chexlocalize
        phantom new --style other
        inspect nowhere
        inspect notes.txt
        build ../chexlocalize/download --out ../chexlocalize/data
        build ../reveal-cxr/download --out new
        build ../reveal-cxr/download --out new --mapping mapping.yaml --id-key ../reveal-cxr/key
        build ../ms-cxr/download --out new --holdout-split nowhere --holdout other
        validate ../chexlocalize/download
        validate ../chexlocalize/private --holdout ../rexecution/private
        diff ../chexlocalize/data ../reveal-cxr/data
        score unknown.jsonl ../chexlocalize/data
        score ../chexlocalize/mine/half.jsonl ../chexlocalize/data
        score ../chexlocalize/prior.jsonl ../chexlocalize/data --split holdout
        score ../chexlocalize/prior.jsonl ../chexlocalize/data --interval wide --unit house
        baseline chance ../reveal-cxr/data --out chance.jsonl
        rank nowhere ../chexlocalize/data
        metrics nothing
        misses nowhere --folder ../chexlocalize/data --out misses
        report nowhere --folder ../chexlocalize/data --out report
        run ../chexlocalize/data --split nowhere --dry-run look
        run ../chexlocalize/data --split released
        publish ../chexlocalize/data org/name --public --dry-run
        attach ../chexlocalize/bare notes.txt --out attached
        verify-receipt receipt.json
        curate sample nowhere
        curate extract new --reports notes.txt
        curate assign ../curation/pool --readers notes.txt
        status x --url http://127.0.0.1:9
        reveal-leaderboard serve --data server --benchmark nowhere
        reveal-leaderboard worker --data server --holdout chexlocalize=nowhere
        reveal-leaderboard audit --data nowhere
        reveal-leaderboard restore . --data restored
        reveal-leaderboard admin boards --data nowhere
    """)


def old_board(recording: Recording, kept: Path) -> None:
    """A board that another recording made, opened and served as it is."""
    steps = Steps(recording, "old-board")
    for name in ("server", "settings.toml"):
        (shutil.copytree if (kept / "board" / name).is_dir() else shutil.copy)(kept / "board" / name, steps.folder / name)
    benchmarks = " ".join(f"--benchmark {kept / name}" for name in (*(f"{board}/data" for board in BOARDS), "chexlocalize/next"))
    with sqlite3.connect(steps.folder / "server" / "leaderboard.sqlite") as connection:
        sent = [row[0] for row in connection.execute("SELECT id FROM submissions ORDER BY created_at")]
    steps.run("reveal-leaderboard audit --data server --json")
    with serving(steps, f"serve --data server --settings settings.toml {benchmarks}", "/readyz") as url:
        read_board(steps, url, "served", sent)
        steps.run(f"receipt {sent[0]} --url {url} --out receipt.json", "receipt.json")


def record(out: Path, data: Path, keep: Path | None, board: Path | None) -> None:
    """Run everything, four chains at a time, and write what came out."""
    with tempfile.TemporaryDirectory(prefix="unchanged-") as folder:
        root = keep or Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        recording = Recording(root.resolve(), data)
        worlds = [lambda style=style: build_world(recording, style) for style in WORLDS]
        chains: list[Callable[[], None]] = [lambda: curate(recording), lambda: real_data(recording)]
        later = [lambda chain=chain: chain(recording) for chain in (score_places, ask_models, score_studies, mistakes)]
        if board:
            later.append(lambda: old_board(recording, board.resolve()))
        with ThreadPoolExecutor(4) as pool:
            run_all(pool, [*worlds, *chains])
            run_all(pool, later)
            keep_board(recording)
        document = {"outputs": recording.outputs, "messages": recording.messages}
        out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{sum(map(len, recording.outputs.values()))} outputs of {len(recording.outputs)} steps: {out}")


def run_all(pool: ThreadPoolExecutor, chains: list[Callable[[], None]]) -> None:
    for done in [pool.submit(chain) for chain in chains]:
        done.result()


def compare(before: Path, after: Path) -> int:
    """Print what differs; 1 if an output does."""
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (before, after))
    reworded: dict[str, list[str]] = {}
    for step in sorted(old["messages"].keys() & new["messages"].keys()):
        lines = (one["messages"][step].splitlines() for one in (old, new))
        changed = [line for line in difflib.unified_diff(*lines, lineterm="", n=0) if not line.startswith(("---", "+++", "@@"))]
        if changed:
            reworded.setdefault("\n".join(changed), []).append(step)
    for text, steps in reworded.items():
        print(f"message of {steps[0]}" + f" and {len(steps) - 1} more" * (len(steps) > 1), text, sep="\n")
    pairs = [{(step, name): value for step, found in one["outputs"].items() for name, value in found.items()} for one in (old, new)]
    different = [key for key in sorted(pairs[0].keys() | pairs[1].keys()) if pairs[0].get(key) != pairs[1].get(key)]
    for step, name in different:
        state = "missing" if (step, name) not in pairs[1] else "new" if (step, name) not in pairs[0] else "differs"
        print(f"{state}: {step} | {name}")
    print(f"{len(reworded)} changes of messages; {len(different)} of {len(pairs[0])} outputs differ")
    return int(bool(different))


def main() -> int:
    parser = argparse.ArgumentParser(description="Whether a change of the code leaves every output as it was.")
    commands = parser.add_subparsers(required=True, dest="command")
    recorder = commands.add_parser("record", help="run everything and write the hashes")
    recorder.add_argument("out", type=Path)
    recorder.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="real files, where they are")
    recorder.add_argument("--keep", type=Path, help="new folder for everything that is made")
    recorder.add_argument("--board", type=Path, help="folder that another recording kept: its board is opened")
    comparer = commands.add_parser("compare", help="print what differs; exit code 1 if an output does")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "compare":
        return compare(given.before, given.after)
    record(given.out, given.data, given.keep, given.board)
    return 0


if __name__ == "__main__":
    sys.exit(main())
