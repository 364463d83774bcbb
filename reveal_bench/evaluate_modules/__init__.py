"""Hugging Face `evaluate` modules: thin wrappers over :mod:`reveal_bench.metrics`, one folder each.

Both ``evaluate.load("reveal_bench/evaluate_modules/hit_rate")``, which needs a checkout, and :func:`load_metric`, which
does not, return a module that computes the same scores as ``reveal-bench score``. The imports of a module's file are
absolute, one per line, because `evaluate` copies the file elsewhere and finds its imports with a regular expression.

A module consists of README.md, a Python file named like its folder, app.py and requirements.txt; copy a folder to add a
module.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

__all__ = ["launch_widget", "load_metric"]


def load_metric(name: str, **options: Any) -> Any:
    """Load one of this package's `evaluate` modules by name.

    Parameters
    ----------
    name : name of a module's folder, such as "hit_rate"
    options : keyword arguments for ``evaluate.load``

    Returns
    -------
    evaluate.EvaluationModule

    Raises
    ------
    ValueError
        If the module does not exist; the message lists the modules.
    ImportError
        If `evaluate` is not installed.
    """
    folder = Path(__file__).parent
    known = sorted(path.parent.name for path in folder.glob("*/README.md"))
    if name not in known:
        raise ValueError(f"`name` must be one of {known}, got {name!r}")
    try:
        import evaluate
    except ImportError:
        raise ImportError("load_metric needs the extra [evaluate]: pip install 'reveal-bench[evaluate]'") from None
    return evaluate.load(str(folder / name), **options)


def launch_widget(name: str) -> None:
    """Serve a module's widget for the Hugging Face Hub: its README and a table in which users type the inputs.

    Raises
    ------
    ValueError, ImportError
        As :func:`load_metric`.
    """
    module = load_metric(name)
    import gradio
    from evaluate.utils import launch_gradio_widget

    # `evaluate` 0.4.6 uses names that gradio removed in 4.0
    for group, component in (("inputs", "Dataframe"), ("outputs", "Textbox")):
        if not hasattr(gradio, group):
            setattr(gradio, group, SimpleNamespace(**{component: getattr(gradio, component)}))
    launch_gradio_widget(module)
