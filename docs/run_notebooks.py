"""Run the notebooks of this folder and write the outputs of their cells: ``python docs/run_notebooks.py``.

Cells run in one process, each notebook in an empty folder. Lines that begin with ``!`` are shell commands, as in
Jupyter. The outputs of a cell are the text that it prints, the value of its last line and its figures. A test runs the
notebooks again and compares the text, so their numbers agree with the code.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import os
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
WIDTH = "100"
"""Width of commands' and tables' output, in characters."""


def run(path: Path) -> dict[str, Any]:
    """Run the notebook at `path` in an empty folder, and return it with the outputs of all cells."""
    import matplotlib as mpl
    import pandas as pd

    mpl.use("Agg")
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    with tempfile.TemporaryDirectory() as folder, chdir(folder), pd.option_context("display.width", int(WIDTH)):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell["execution_count"] = count
                cell["outputs"] = _outputs("".join(cell["source"]), names, count)
    return notebook


def text(notebook: dict[str, Any]) -> str:
    """Return the text of a notebook's file."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def shown(notebook: dict[str, Any]) -> list[list[str]]:
    """Return the outputs of each cell as text; a figure is the text "<Figure>"."""
    cells = []
    for cell in notebook["cells"]:
        outputs = cell.get("outputs", ())
        cells.append(["".join(one["text"] if "text" in one else one["data"].get("text/plain", "")) for one in outputs])
    return cells


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    printed = io.StringIO()
    value = None
    if source.startswith("!"):
        printed.write("".join(_command(line[1:]) for line in source.splitlines()))
    else:
        tree = ast.parse(source)
        is_silent = source.rstrip().endswith(";")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) and not is_silent else None
        with redirect_stdout(printed):
            exec(compile(tree, "cell", "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _lines(value._repr_html_())
        outputs.append({"output_type": "execute_result", "execution_count": count, "data": data, "metadata": {}})
    return outputs + _figures()


def _command(line: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(line, shell=True, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{line}\n{done.stdout}{done.stderr}")
    return done.stdout


def _figures() -> list[dict[str, Any]]:
    from matplotlib import pyplot

    outputs = []
    for number in pyplot.get_fignums():
        image = io.BytesIO()
        pyplot.figure(number).savefig(image, format="png", dpi=80, bbox_inches="tight")
        data = {"image/png": base64.b64encode(image.getvalue()).decode(), "text/plain": ["<Figure>"]}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    pyplot.close("all")
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    os.environ["COLUMNS"] = WIDTH
    for notebook_path in sorted(FOLDER.glob("*.ipynb")):
        notebook_path.write_text(text(run(notebook_path)), encoding="utf-8")
