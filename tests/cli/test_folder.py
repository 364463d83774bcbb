"""Commands on dataset folders: output and exit codes."""

import json
import shutil

import pytest
import typer
from typer.testing import CliRunner

from reveal_bench.cli import data as cli_folder
from reveal_bench.cli import report as cli_report
from tests.dataset.card_folders import edit, findings_folder, localization_folder


def run(*words, ok=True):
    app = typer.Typer()
    for command in (cli_folder.validate, cli_folder.diff, cli_report.report, cli_folder.attach):
        app.command()(command)
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert (done.exit_code == 0) == ok, done.output
    return done


def test_validate(tmp_path):
    folder = findings_folder(tmp_path, n=4, holdout=True)
    assert run("validate", folder, "--holdout", tmp_path / "private").output == f"{folder}: no problems\n"
    edit(folder, "multilabel/released", lambda row: row.update(label_vector=[0, 0, 0]))
    done = run("validate", folder, "--no-load", ok=False)
    assert done.output.count("error: multilabel/released-00000-of-00001.parquet:study-") == 2
    document = json.loads(run("validate", folder, "--no-load", "--json", ok=False).stdout)
    assert {problem["field"] for problem in document["problems"]} == {"label_vector"}
    assert document["warnings"] == []


def test_validate_prints_the_first_fifty(tmp_path):
    folder = localization_folder(tmp_path, n=60, pixels="withhold")
    edit(folder, "localization/test", lambda row: row.update(width=0))
    lines = run("validate", folder, "--no-load", ok=False).stdout.splitlines()
    assert len(lines) == 51
    assert lines[-1].startswith("error: ... and ")


def test_diff(tmp_path):
    folder = localization_folder(tmp_path, n=2)
    shutil.copytree(folder, tmp_path / "after")
    edit(tmp_path / "after", "localization/test", lambda row: row.update(view=1))
    text = run("diff", folder, tmp_path / "after").stdout
    assert text == "chexlocalize 1.0.0 -> 1.0.0\n\nOther view (2):\n  img0\n  img1\n"
    assert json.loads(run("diff", folder, tmp_path / "after", "--json").stdout)["other"] == {"view": ["img0", "img1"]}
    with pytest.raises(ValueError, match="go together"):
        run("diff", folder, folder, "--holdout-before", folder)


def test_report(tmp_path):
    folder = findings_folder(tmp_path, n=2)
    done = run("report", folder)
    assert "keep the page with the data" in done.stderr
    assert done.stdout == f"wrote {tmp_path / 'folder-report.html'}\n"
    assert (tmp_path / "folder-report.html").read_text().startswith("<!doctype html>")
    run("report", folder, "--out", tmp_path / "b.html", "--split", "test")
    assert (tmp_path / "b.html").is_file()
    assert run("report", folder, "--out", tmp_path / "new" / "page").stdout.split()[1].endswith("page/report.html")


def test_attach(tmp_path):
    folder = localization_folder(tmp_path, n=4, pixels="withhold", holdout=True)
    out = tmp_path / "full"
    done = run("attach", folder, tmp_path / "pictures", "--out", out, "--keep-going")
    assert done.stdout == f"wrote {out}: 2 images verified, 0 not verified, 2 left out\n"
    assert done.stderr.count("left out: pictures:img") == 2
    for path in list((tmp_path / "pictures").iterdir()):
        path.rename(path.with_name(f"img{path.name}"))
    done = run("attach", folder, tmp_path / "pictures", "--out", tmp_path / "named")
    assert "matched by name but not verified" in done.stderr
    assert "2 images verified, 2 not verified, 0 left out" in done.stdout
