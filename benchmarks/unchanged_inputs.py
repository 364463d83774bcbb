"""What `unchanged.py` feeds to the commands: predictions, answers, votes, ratings, and a model that is played.

The contents are meaningless: any fixed function of the questions will do. Each writes into `out`, a new folder or file.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

BOX = ("x", "y", "width", "height")
CRITERIA = ("process", "execution", "synthesis", "language", "image_content", "image_style")
BOXES_TEXT = 'An opacity.\n```json\n{"boxes": [{"image": 1, "label": "opacity", "x": 5, "y": 6, "w": 7, "h": 8}]}\n```'


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet file."""
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """CSV, or TSV by the name of the file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)


def predict_places(folder: Path, split: str, masks: Path, out: Path, *, seed: int) -> None:
    """A localization split in every form of a place and every format; `masks` is a file of its location prior."""
    rng = random.Random(seed)
    prior = {(one["image_id"], one["finding"]): one["rle"] for one in map(json.loads, masks.open(encoding="utf-8"))}
    heads: list[dict[str, Any]] = []  # what every form of a prediction has
    forms: list[dict[str, Any]] = []
    sizes: list[list[int]] = []
    for row in read_rows(folder / "manifest" / f"{split}.parquet"):
        for finding in row["asked"]:
            width, height = row["width"], row["height"]
            x, y, w, h = (rng.randrange(8, side // 2) for side in (width, height, width, height))
            heads.append({"image_id": row["image_id"], "finding": finding, "score": round(rng.random(), 3)})
            sizes.append([height, width])
            forms.append({
                "point": [x + 0.5, y], "points": [[x, y], [width - 1, height - 1]], "box": [x, y, w, h],
                "cell": f"{rng.choice('ABCDEFGH')}{rng.randrange(1, 9)}", "rle": prior[row["image_id"], finding],
                "polygons": [[[x, y], [x + w, y], [x + w, y + h], [x, y + h]]],
            })  # fmt: skip
    both = list(zip(heads, forms, strict=True))
    out.mkdir()
    mixed = [{**head, name: form[name]} for i, (head, form) in enumerate(both) for name in [list(form)[i % len(form)]]]
    write_lines(out / "mixed.jsonl", mixed)
    write_lines(out / "half.jsonl", mixed[::2])
    write_lines(out / "all.jsonl", [head | {k: v for k, v in form.items() if k != "points"} for head, form in both])
    with gzip.GzipFile(out / "packed.jsonl.gz", "wb", mtime=0) as packed:
        packed.write((out / "mixed.jsonl").read_bytes())
    with pa.CompressedOutputStream(str(out / "zstd.jsonl.zst"), "zstd") as packed:
        packed.write((out / "mixed.jsonl").read_bytes())
    boxes = [head | dict(zip(BOX, form["box"], strict=True)) for head, form in both]
    write_table(out / "boxes.tsv", boxes)
    pq.write_table(pa.Table.from_pylist(boxes), out / "table.parquet")
    write_table(out / "points.csv", [{k: v for k, v in row.items() if k not in BOX[2:]} for row in boxes])
    write_table(out / "cells.csv", [head | {"cell": form["cell"]} for head, form in both])
    runs = [
        {"size_h": h, "size_w": w, "counts": form["rle"]["counts"]} for form, (h, w) in zip(forms, sizes, strict=True)
    ]
    write_table(out / "masks.csv", [head | one for head, one in zip(heads, runs, strict=True)])
    for name, form in (("segmentations", "rle"), ("salient", "points"), ("annotations", "polygons")):
        document: dict[str, dict[str, Any]] = {}
        for head, forms_of_case, size in zip(heads, forms, sizes, strict=True):
            first = {"img_size": size} if name == "annotations" else {}
            document.setdefault(head["image_id"], first)[head["finding"]] = forms_of_case[form]
        (out / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    coco = [
        {"image_id": head["image_id"], "category_id": head["finding"], "bbox": form["box"], "score": head["score"]}
        for head, form in both
    ]
    (out / "coco.json").write_text(json.dumps(coco), encoding="utf-8")


def predict_labels(folder: Path, split: str, out: Path, *, seed: int) -> None:
    """A findings split: labels, probabilities, tables of these, and thresholds."""
    rng, studies = random.Random(seed), read_rows(folder / "manifest" / f"{split}.parquet")
    labels = json.loads((folder / "manifest" / "benchmark.json").read_text(encoding="utf-8"))["findings"]
    rows = [({"study_id": row["study_id"]}, {label: round(rng.random(), 3) for label in labels}) for row in studies]
    out.mkdir()
    write_lines(out / "labels.jsonl", [head | {"labels": [k for k in p if p[k] > 0.6]} for head, p in rows])
    write_lines(out / "probabilities.jsonl", [head | {"probabilities": p} for head, p in rows])
    write_lines(out / "half.jsonl", [head | {"probabilities": p} for head, p in rows[::2]])
    write_table(out / "table.csv", [head | p for head, p in rows])
    write_table(out / "tabs.tsv", [head | p for head, p in rows])
    thresholds = {label: round(rng.random(), 2) for label in labels}
    (out / "thresholds.json").write_text(json.dumps({"thresholds": thresholds}), encoding="utf-8")


def answer_tasks(folder: Path, split: str, out: Path, *, seed: int) -> None:
    """Answers to a split of tasks; every other one has a box."""
    rng, lines = random.Random(seed), []
    for number, row in enumerate(read_rows(folder / "manifest" / f"{split}.parquet")):
        box = {"image_id": row["image_ids"][0], "label": "opacity", "box": [1, 2, rng.randrange(3, 20), 9]}
        lines.append(
            {"task_id": row["task_id"], "answer": f"Answer {rng.random():.6f}.", "boxes": [box] * (number % 2)}
        )
    out.mkdir()
    write_lines(out / "answers.jsonl", lines)


def cast_votes(curation: Path, out: Path) -> None:
    """Write the readers' votes on the studies that a curation assigned to them."""
    rng, rows = random.Random(5), []
    votes = [("Agree All", "", ""), ("Agree Mostly", "No pneumothorax.", ""), ("Disagree", "", "Cardiomegaly; COPD")]
    for one in read_rows(curation / "assignments.parquet"):
        answer, comment, labels = rng.choices(votes, [8, 1, 1])[0]
        head = {"study": one["study_id"], "reader": one["reader"]}
        rows.append({**head, "answer": answer, "comment": comment, "labels": labels})
    write_table(out, rows)


def rate_answers(answers: Path, out: Path) -> None:
    """Write ratings of the answers in the file of ``admin answers``; picture criteria only for answers with boxes."""
    rows = []
    with answers.open(encoding="utf-8", newline="") as file:
        for row in sorted(csv.DictReader(file), key=lambda row: row["task_id"]):
            asked = CRITERIA if row["boxes"] else CRITERIA[:4]
            scores = {name: 1 + hash_of(row["task_id"] + name) % 5 if name in asked else "" for name in CRITERIA}
            rows.append({"answer_id": row["answer_id"], "reader": "Reader A", **scores})
    write_table(out, rows)


def hash_of(text: str) -> int:
    return random.Random(text).randrange(1000)


def log_lmms(export: Path, out: Path) -> None:
    """Write the part of lmms-eval's log of an export that our importer reads."""
    rows = read_rows(export / "questions.parquet")
    log_fields = {"token_counts": [None], "reveal": {"replies": ["answered"], "lmms_eval": "0.7.3"}}
    lines = [
        {"target": f"{row['sent']} {row['id']}", "filtered_resps": [f"Cell: B{1 + i % 8}"], **log_fields}
        for i, row in enumerate(rows)
    ]
    write_lines(out, lines)


@contextmanager
def playing() -> Iterator[tuple[str, list[str]]]:
    """Serve an OpenAI-compatible API whose replies depend on the request alone: its URL, and the requests so far."""
    asked: list[str] = []

    class Played(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            request = json.dumps(body, sort_keys=True)
            asked.append(request)  # other threads append as well
            message = {"role": "assistant", "content": reply(body)}
            n = len(request) % 997
            tokens = {"prompt_tokens": n, "completion_tokens": 7, "total_tokens": n + 7}
            choices = [{"index": 0, "finish_reason": "stop", "message": message}]
            head = {"id": "1", "object": "chat.completion", "created": 0, "model": "played"}
            content = json.dumps({**head, "choices": choices, "usage": tokens}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Played) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
        server.shutdown()


def reply(body: Mapping[str, Any]) -> str:
    """Return JSON for the questions of a curation; for others an answer in the requested form, or a useless one."""
    last = body["messages"][-1]["content"]
    rng = random.Random(json.dumps(last))
    task = body.get("response_format", {}).get("json_schema", {}).get("name")
    if task == "findings":
        finding = {"finding": "cardiomegaly", "side": None, "icd10": "I51.7"}
        return json.dumps({"findings": [finding] * rng.randrange(2)})
    if task == "note":
        return json.dumps({"revised_labels": rng.choice([["COPD"], [], ["NA"]]), "reason": "So the note."})
    if task in ("labels", "labelled_findings"):
        names = json.loads(last) if task == "labels" else ["copd"]
        return json.dumps({"key_findings": names, "benchmark_labels": [rng.choice(["COPD", "None"]) for _ in names]})
    if rng.random() < 0.15:
        return rng.choice(["I can't help with interpreting medical images.", "", "It is hard to say."])
    numbers = [rng.randrange(10, 120) for _ in range(4)]
    answers = {
        "Cell": rng.choice("ABCDEFGH") + str(rng.randrange(1, 9)),
        "Point": ", ".join(map(str, numbers[:2])),
        "Box": ", ".join(map(str, numbers)),
        "Findings": rng.choice(["none", "Cardiomegaly", "COPD, Pneumothorax"]),
    }
    asked = re.findall(r'the word "(\w+)"', " ".join(part.get("text", "") for part in last))
    return f"{asked[-1]}: {answers[asked[-1]]}" if asked else BOXES_TEXT
