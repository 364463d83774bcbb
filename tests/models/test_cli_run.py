"""The commands that ask models and report on them, from an image to a page, run as a user would."""

from __future__ import annotations

import csv
import io
import json
import shutil
import socket
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from reveal_bench.cli import run as cli_run
from reveal_bench.kinds.localization.records import read_localization
from reveal_bench.models import endpoints, running
from reveal_bench.models.endpoints import RunStoppedError
from reveal_bench.models.run_folder import read_run
from tests.cli.test_score import call
from tests.models.conftest import Truth, playing
from tests.models.endpoint import PlayedModel

ASKED = 20
"""Questions of a run: of several findings, and not all of the split."""


@pytest.fixture(scope="module")
def ran(films: Path, truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, PlayedModel, str]]:
    """A run by the command line; one question is refused."""
    out = tmp_path_factory.mktemp("ran") / "chat"
    refused = truth.questions[0][0]
    with playing(truth, faults={refused: ["refusal"]}) as (model, _):
        done = call(*words(films, model, out), "--price-in", "2.5", "--price-out", "10")
        yield out, model, done.stdout


def words(films: Path, model: PlayedModel, out: Path) -> list[object]:
    asked = ["run", films, "--split", "test", "--limit", ASKED]
    return [*asked, "--model", "chat", "--endpoint", model.url, "--out", out]


def test_a_run_says_what_became_of_it(ran: tuple[Path, PlayedModel, str], films: Path) -> None:
    out, model, output = ran
    rows = {line.split()[0]: line.split()[1:] for line in output.splitlines() if line}
    assert rows["all"] == [str(ASKED), str(ASKED - 1), "1"]  # asked, answered, refused
    tokens_in, _, tokens_out = (sum(column) for column in zip(*model.usage, strict=True))
    cost = (tokens_in * Decimal("2.5") + tokens_out * 10) / 1_000_000
    assert f"{tokens_in:,} in" in output
    assert f"{tokens_out:,} out; cost {cost.normalize():f}\n" in output
    assert f"reveal-bench score {out} {films}\n" in output
    assert f"no usable answer to 1 of {ASKED} questions: 1 refused; all replies: {out / 'transcript.jsonl'}\n" in output
    assert len((out / "predictions.jsonl").read_text().splitlines()) == ASKED - 1


def test_what_it_says_next_works(ran: tuple[Path, PlayedModel, str], truth: Truth, films: Path) -> None:
    _, _, output = ran
    (line,) = [line for line in output.splitlines() if line.startswith("score: reveal-bench ")]
    document = json.loads(call(*line.removeprefix("score: reveal-bench ").split(), "--json").stdout)
    rows = [row for row in document["estimates"] if row["metric"] == "grid_hit" and row["finding"] != "macro"]
    hits = sum(round(row["value"] * row["n"]) for row in rows if row["n"])
    assert sum(row["n"] for row in rows) == ASKED
    assert document["protocol"]["part"].startswith(f"{ASKED} of {len(truth.questions)} questions, ")
    assert hits == ASKED - 1


def test_given_again_it_asks_nothing_and_another_run_is_refused(
    ran: tuple[Path, PlayedModel, str], films: Path
) -> None:
    out, model, _ = ran
    asked, before = len(model.asked), (out / "transcript.jsonl").read_bytes()
    call(*words(films, model, out), "--price-in", "2.5", "--price-out", "10")
    assert len(model.asked) == asked
    assert (out / "transcript.jsonl").read_bytes() == before
    refused = call(*words(films, model, out), "--grid", "16", expect=1).stderr
    assert "contains another run: run.json says" in refused


def test_some_findings_are_asked_and_ranked(ran: tuple[Path, PlayedModel, str], films: Path, tmp_path: Path) -> None:
    out, model, _ = ran
    first, *others = dict.fromkeys(str(one.finding) for one in read_run(out).exchanges)
    asked = ("run", films, "--split", "test", "--model", "chat", "--endpoint", model.url, "--out", tmp_path / "one")
    call(*asked, "--findings", first.lower())
    assert {one.finding for one in read_run(tmp_path / "one").exchanges} == {first}
    refused = call(*asked, "--findings", ",".join(others), expect=1)
    assert "in it would be lost, such as that to " in refused.stderr
    ranked = call("rank", out, f"again={out}", tmp_path / "one", films, "--resamples", 20, "--json")
    assert {row["name"] for row in json.loads(ranked.stdout)["systems"]} == {out.name, "again", "one"}


def test_requests_fit_what_servers_accept(films: Path, truth: Truth, tmp_path: Path) -> None:
    extra = {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}}
    options = ("--extra-body", json.dumps(extra), "--top-p", "0.9", "--detail", "auto", "--system", "user")
    with playing(truth) as (model, _):
        call(*words(films, model, tmp_path / "run"), *options)
        call(*words(films, model, tmp_path / "run"), *options)  # resumes
    assert len(model.bodies) == ASKED
    for body in model.bodies:
        assert body.items() >= {**extra, "top_p": 0.9, "temperature": 0.0}.items()
        (message,) = body["messages"]
        texts = [part["text"] for part in message["content"] if part["type"] == "text"]
        assert (message["role"], texts[0].split(" with ")[0]) == ("user", "You take part in a reading test")
        assert [[*part["image_url"]] for part in message["content"] if part["type"] == "image_url"] == [["url"]]
    sent = json.loads((tmp_path / "run" / "submission.json").read_text())["parameters"]
    assert (json.loads(sent["extra_body"]), sent["system"]) == (extra, "user")


@pytest.mark.parametrize(
    ("reason", "option"),
    [
        ("System role not supported", "--system user"),
        ("Conversation roles must alternate user/assistant/user/assistant/...", "--system user"),
        ("Unknown field: image_url.detail", "--detail auto"),
        ("Unsupported value: 'temperature' does not support 0 with this model.", "--temperature none"),
        ("Use 'max_completion_tokens' instead.", "--extra-body '{\"max_completion_tokens\": N}'"),
    ],
)
def test_refused_request_names_the_option(reason: str, option: str) -> None:
    assert cli_run._remedy(RunStoppedError(reason, 400), "http://localhost/v1").startswith(f"use {option}")


def test_logs_become_the_same_run(ran: tuple[Path, PlayedModel, str], tmp_path: Path) -> None:
    out, _, _ = ran
    call("import-inspect", out / "logs", "--out", tmp_path / "again", "--price-in", "2.5", "--price-out", "10")
    for name in ("transcript.jsonl", "predictions.jsonl", "summary.json"):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes(), name


def test_a_dry_run_asks_nobody(films: Path, truth: Truth, tmp_path: Path) -> None:
    output = call("run", films, "--split", "test", "--prompt", "few-shot", "--limit", 3, "--dry-run", tmp_path / "dry")
    assert output.stdout.startswith(f"wrote 3 questions to {tmp_path / 'dry'}: ")
    asked = [path.name for path in (tmp_path / "dry" / "questions").iterdir()]
    assert len(asked) == 3
    page = (tmp_path / "dry" / "index.html").read_text(encoding="utf-8")
    assert all(finding in page for _, finding, _ in truth.questions[:3])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "`--model` and `--out` must be given, or `--dry-run`"),
        (("--model", "chat", "--out", "x", "--temperature", "warm"), "`--temperature` must be a number or `none`"),
        (("--model", "chat", "--out", "x", "--price-in", "1"), "give both of `--price-in` and `--price-out`"),
        (("--model", "chat", "--out", "x"), "--model must be provider/name, or have an --endpoint, got 'chat'"),
        (("--model", "chat", "--out", "x", "--extra-body", "[1]"), "`--extra-body` must be a JSON object, such as "),
        (("--model", "a/b", "--out", "x", "--extra-body", '{"n": 2}'), "--extra-body must not have fields that the"),
        (("--answer", "labels", "--dry-run", "x"), "--answer must be one of cell, point, box"),
        (("--grid", "20", "--side", "64", "--dry-run", "x"), "--side must be at least"),
    ],
)
def test_what_cannot_be_is_said(films: Path, options: tuple[str, ...], message: str) -> None:
    assert message in call("run", films, "--split", "test", *options, expect=1).stderr


@pytest.mark.usefixtures("undrawn")
def test_report_and_misses(ran: tuple[Path, PlayedModel, str], films: Path, tmp_path: Path) -> None:
    out, _, _ = ran
    call("baseline", "chance", films, "--split", "test", "--out", tmp_path / "chance.jsonl")
    both = (f"chat={out}", f"chance={tmp_path / 'chance.jsonl'}", "--folder", films)
    output = call("report", *both, "--split", "test", "--out", tmp_path / "report", "--resamples", 50).stdout
    assert output == f"wrote {tmp_path / 'report' / 'report.html'}\n"
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "chance" in page
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"report.html", "figures", "tables"}
    output = call("misses", *both, "--split", "test", "--out", tmp_path / "misses", "--most", 2).stdout
    lines = (tmp_path / "misses" / "for_readers" / "misses.jsonl").read_text().splitlines()
    assert f"wrote {len(lines)} misses to {tmp_path / 'misses'}" in output
    records = {record.image_id: record for record in read_localization(films, "test")}
    asked = [records[json.loads(line)["image_id"]] for line in (out / "transcript.jsonl").read_text().splitlines()]
    n_lateral = sum(record.view == "LATERAL" for record in asked)
    assert f"not for readers: {2 * n_lateral} lateral questions, " in output  # of two models
    n_images, n_patients = (len({getattr(record, name) for record in asked}) for name in ("image_id", "patient_id"))
    assert f"{len(asked)} questions with a reference on {n_images} images of {n_patients} patients" in page
    assert "`--folder`" in call("report", out, tmp_path / "chance.jsonl", expect=1).stderr


def test_the_phantom_tells_where_its_organs_are(tmp_path: Path) -> None:
    sized = ("--images", 2, "--val-images", 1, "--long-side", 128, "--anatomy", tmp_path / "anatomy.jsonl")
    call("phantom", tmp_path / "download", *sized)
    lines = [json.loads(line) for line in (tmp_path / "anatomy.jsonl").read_text().splitlines()]
    assert {"image_id", "size", "regions"} <= set(lines[0])
    refused = call("phantom", tmp_path / "b", "--style", "reveal-cxr", "--anatomy", tmp_path / "b.jsonl", expect=1)
    assert "`--anatomy` is only for --style chexlocalize" in refused.stderr


def test_tasks_for_lmms_eval(films: Path, tmp_path: Path) -> None:
    output = call("export-lmms", films, "--split", "test", "--limit", 4, "--out", tmp_path / "lmms").stdout
    readme = tmp_path / "lmms" / "README.md"
    assert output == f"wrote the task reveal_grid to {tmp_path / 'lmms'}; how to run and import it: {readme}\n"
    assert "--tasks reveal_grid" in readme.read_text(encoding="utf-8")
    nothing = call("import-lmms", tmp_path, "--tasks", tmp_path / "lmms", "--out", tmp_path / "run", expect=1)
    assert nothing.stderr.startswith("error: ")


def test_saved_replies_give_the_predictions_of_the_run_that_they_are_of(
    ran: tuple[Path, PlayedModel, str], films: Path, tmp_path: Path
) -> None:
    out, _, _ = ran
    lines = [json.loads(line) for line in (out / "transcript.jsonl").read_text().splitlines()]
    saved = [{"image_id": x["image_id"], "finding": x["finding"], "reply": x["text"]} for x in lines if x["text"]]
    with (tmp_path / "replies.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, saved[0].keys())
        table.writeheader()
        table.writerows(saved)
    (tmp_path / "replies.jsonl").write_text("".join(json.dumps(row) + "\n" for row in saved))
    asked = (films, "--split", "test", "--model", "Ours")
    for name in ("replies.csv", "replies.jsonl"):
        call("import-replies", tmp_path / name, *asked, "--out", tmp_path / name.partition(".")[2])
        made = tmp_path / name.partition(".")[2] / "predictions.jsonl"
        assert made.read_bytes() == (out / "predictions.jsonl").read_bytes()
    lower = [row | {"finding": row["finding"].lower()} for row in saved[1:]]
    (tmp_path / "fewer.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lower))
    lost = call("import-replies", tmp_path / "fewer.jsonl", *asked, "--out", tmp_path / "csv", expect=1).stderr
    assert "csv must be a new folder, unless all its questions are asked again: 1 answer in it would be lost" in lost
    call("import-replies", tmp_path / "fewer.jsonl", *asked, "--out", tmp_path / "fewer")
    theirs = [
        {"image": f"img/{one['image_id']}.jpg", "pathology": one["finding"], "text": one["reply"]} for one in saved
    ]
    (tmp_path / "theirs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in theirs))
    named = [word for name in ("image=image_id", "pathology=finding", "text=reply") for word in ("--column", name)]
    call("import-replies", tmp_path / "theirs.jsonl", *asked, *named, "--out", tmp_path / "theirs")
    assert (tmp_path / "theirs/predictions.jsonl").read_bytes() == (out / "predictions.jsonl").read_bytes()
    named[-1] = "text=answer"
    refused = call(
        "import-replies", tmp_path / "theirs.jsonl", *asked, *named, "--out", tmp_path / "no", expect=1
    ).stderr
    assert "--column must give each of image_id, finding, reply, finish_reason to at most one column" in refused
    first, twice = json.dumps(saved[0]), "must be about a question without an earlier row, got"
    for text, problem in (
        (f"{first}\n{first}\n", f"faulty.jsonl:2 {twice}"),
        ("[]\n", "faulty.jsonl:1: `entry` must be a JSON object, got list"),
        ('{"reply": "D5"}\n', "must have the 3 columns image_id, finding, reply; image_id, finding not among reply"),
        (
            "image_id,pathology,response\na,Edema,D5\n",
            "must have the 3 columns image_id, finding, reply; finding, reply not among image_id, pathology, response: "
            "--column pathology=finding renames a column",
        ),
        (
            json.dumps(saved[0] | {"image_id": f"{saved[0]['image_id']}x"}) + "\n",
            f"must be an id of the split, got '{saved[0]['image_id']}x' (nearest: '{saved[0]['image_id']}')",
        ),
        (json.dumps(saved[0] | {"finding": "Edem"}) + "\n", "`finding` must be one that is asked about"),
        ("image_id,finding,reply\n", "faulty.csv must have at least one row, got none"),
        (
            'image_id,finding,reply\na,b,"c\n',
            "faulty.csv:2: `file` must be readable as csv in UTF-8, got unexpected end of data",
        ),
        ("image_id,finding,reply\na,b,c,d\n", "faulty.csv:2: `row` must have 3 cells, like the header, got 4"),
        (
            "image_id,reply,reply\na,b,c\n",
            "faulty.csv:1: `columns` must have different names, got reply more than once",
        ),
    ):
        faulty = tmp_path / ("faulty.csv" if text.startswith("image_id,") else "faulty.jsonl")
        faulty.write_text(text)
        refused = call("import-replies", faulty, *asked, "--out", tmp_path / "no", expect=1)
        assert problem in refused.stderr
    refused = call(
        "import-replies", tmp_path / "replies.csv", *asked, "--out", shutil.copytree(out, tmp_path / "ran"), expect=1
    )
    assert "contains another run" in refused.stderr


def test_run_folders_are_compared_and_ranked(ran: tuple[Path, PlayedModel, str], films: Path, tmp_path: Path) -> None:
    out, _, _ = ran
    shutil.copytree(out, tmp_path / "runs" / "other")
    shutil.copytree(out, tmp_path / "runs" / "chat")
    first, second = (tmp_path / "runs" / name / "predictions.jsonl" for name in ("chat", "other"))
    few = ("--resamples", 50)  # the split is that of the runs
    output = call("compare", first, second, films, "--metric", "grid_hit", *few).stdout
    assert output.startswith("A chat/predictions.jsonl, B other/predictions.jsonl on chexlocalize 1.0.0, split test")
    ranked = json.loads(call("rank", tmp_path / "runs", films, "--metric", "grid_hit", *few, "--json").stdout)
    assert {row["name"]: row["rank"] for row in ranked["systems"]} == {"chat": 1, "other": 1}
    record = first.with_name("run.json")
    record.write_text(record.read_text(encoding="utf-8").replace('"split": "test"', '"split": "validation"'))
    refused = call("compare", first, second, films, *few, expect=1).stderr
    assert "--split must be the same for all runs, got test, validation" in refused


def test_published_rows_stand_beside_a_score(ran: tuple[Path, PlayedModel, str], films: Path, tmp_path: Path) -> None:
    asked = ("--allow-missing", "--resamples", 1, "--published", "--metric", "grid_hit")
    refused = call("score", ran[0], films, *asked, expect=1).stderr
    assert "--published must be omitted for a selection of questions, got chexlocalize 1.0.0, split test, 20" in refused
    file = shutil.copy(ran[0] / "predictions.jsonl", tmp_path / "chat.jsonl")  # scored over the whole split
    asked += ("--split", "test")
    refused = call("score", file, films, *asked, expect=1).stderr
    assert "--published must be omitted: no published row is comparable. Results are published on" in refused
    real = tmp_path / "real"
    shutil.copytree(films, real)
    info = real / "manifest" / "benchmark.json"
    info.write_text(info.read_text(encoding="utf-8").replace('"synthetic": true', '"synthetic": false'))
    score = call("score", file, real, *asked[:3], "--split", "test", "--format", "csv").stdout
    own = {row["finding"]: row["value"] for row in csv.DictReader(io.StringIO(score)) if row["metric"] == "grid_hit"}
    rows = list(csv.DictReader(io.StringIO(call("score", file, real, *asked, "--format", "csv").stdout)))
    values = {(row["system"], row["finding"]): row["value"] for row in rows}
    assert values[ran[0].name, "Edema"] == own["Edema"]
    assert values["GPT-5, few-shot", "Edema"] == "0.747"  # paper 000, Table 2
    assert {row["metric"] for row in rows} == {"grid_hit"}
    markdown = call("score", file, real, *asked, "--format", "markdown").stdout
    assert "GPT-5, few-shot" in markdown
    assert "| 74.7 |" in markdown


def test_a_prior_that_answers_its_own_split_is_told_of(films: Path, tmp_path: Path) -> None:
    itself = ("baseline", "location-prior", films, "--out", tmp_path / "prior.jsonl", "--split", "test", "--fit-split")
    assert "learns from the split that it answers, 'test'" in call(*itself, "test").stderr
    assert "learns from" not in call(*itself, "validation").stderr


def test_an_early_ctrl_c_ends_the_run(
    films: Path, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """inspect_ai then gives back no log at all."""
    monkeypatch.setattr("inspect_ai.eval", lambda *_, **__: [])
    with playing(truth) as (model, _):
        done = call(*words(films, model, tmp_path / "run"), expect=130)
    assert "stopped; answers are kept in" in done.stderr


def test_the_run_reads_back(ran: tuple[Path, PlayedModel, str], truth: Truth) -> None:
    run = read_run(ran[0])
    assert [exchange.question for exchange in run.exchanges] == [question for question, _, _ in truth.questions[:ASKED]]
    assert run.exchanges[0].status == "refused"


def test_a_run_folder_is_no_dataset_and_nothing_of_others(films: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    asked = ("run", films, "--split", "test", "--model", "chat", "--endpoint", "http://127.0.0.1:9/v1")
    for option in ("--out", "--dry-run"):
        within = call(*asked, option, films / "runs", expect=1).stderr
        assert f"`{option}` must be outside dataset folders" in within
        assert not (films / "runs").exists()
        assert "which contains file" in call(*asked, option, tmp_path, expect=1).stderr
    beneath = call(*asked, "--out", tmp_path / "file" / "run", expect=1).stderr
    assert "`--out` must be a writable folder" in beneath


def test_an_endpoint_that_is_down_is_said_at_once(films: Path, tmp_path: Path) -> None:
    with socket.socket() as closed:  # bound, but nobody listens: no other process can take the port meanwhile
        closed.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        asked = ("run", films, "--split", "test", "--model", "chat", "--endpoint", endpoint)
        output = call(*asked, "--out", tmp_path / "run", expect=1).stderr
    assert f"--endpoint must be the address of a running server, got {endpoint}: Connection refused" in output


def test_what_is_complete_is_written_anew_without_the_model(
    ran: tuple[Path, PlayedModel, str], films: Path, tmp_path: Path
) -> None:
    out, model, _ = ran
    shutil.copytree(out, tmp_path / "run")
    gone = words(films, model, tmp_path / "run")
    gone[gone.index("--endpoint") + 1] = "http://127.0.0.1:9/v1"
    assert "cost 0\n" in call(*gone, "--price-in", "0", "--price-out", "0").stdout


@pytest.mark.parametrize(
    ("reason", "status", "endpoint", "remedy"),
    [
        ("bad key", 401, "http://x/v1", "REVEAL_MODEL_KEY, which is not set; "),
        ("bad key", 401, None, "check the provider's key"),
        ("no such model", 404, "http://x/v1", "check the name in --model and --endpoint"),
        ("Connection error.", None, "http://x/v1", "fix the problem, "),
    ],
)
def test_a_run_that_stops_says_what_to_do(
    films: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    status: int | None,
    endpoint: str | None,
    remedy: str,
) -> None:
    def stops(*_: object, **__: object) -> None:
        raise RunStoppedError(reason, status)

    monkeypatch.delenv("REVEAL_MODEL_KEY", raising=False)
    monkeypatch.setattr(running, "run_model", stops)
    monkeypatch.setattr(endpoints, "check_reachable", lambda _: None)
    where = () if endpoint is None else ("--endpoint", endpoint)
    asked = ("run", films, "--split", "test", "--model", "a/chat", *where, "--out", tmp_path / "run")
    output = call(*asked, expect=1).stderr
    assert reason in output
    assert remedy in output
    assert ("--ask-again" in output) == (status is not None)


def test_an_interrupt_is_no_error(films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run_model", interrupted)
    output = call("run", films, "--split", "test", "--model", "a/chat", "--out", tmp_path / "run", expect=130).stderr
    assert output == f"stopped; answers are kept in {tmp_path / 'run'}: repeat the command to continue\n"


def test_after_a_holdout_comes_the_board(films: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli_run._say_where(Path("run"), 1, films, "elsewhere", is_text=False)  # a split without references here
    command = "reveal-bench submit run --benchmark NAME"
    assert f"references are private; to get a score: {command}" in capsys.readouterr().out


def test_pictures_and_references_stay_out_of_datasets(
    ran: tuple[Path, PlayedModel, str], films: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(films)
    for place in (films / "inside", tmp_path / "link" / "inside"):
        for command in (
            ("misses", ran[0], "--folder", films, "--split", "test"),
            ("export-lmms", films, "--split", "test"),
            ("import-inspect", ran[0] / "logs"),
        ):
            assert "`--out` must be outside dataset folders" in call(*command, "--out", place, expect=1).stderr
    assert not (films / "inside").exists()


def test_answers_in_words_are_for_readers(films: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli_run._say_where(Path("run"), 1, films, "test", is_text=True)
    output = capsys.readouterr().out
    assert f"readers score these answers; check the file: reveal-bench lint run {films}" in output
