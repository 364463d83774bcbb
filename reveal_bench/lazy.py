"""Lazy imports: a module is imported when one of its names is first used, so that importing its package is fast."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def getter(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for `package`; `home` maps public names to their modules, relative to `package`.

    Examples
    --------
    >>> getter("reveal_bench", {"BENCHMARKS": "benchmarks"})("Benchmark")
    Traceback (most recent call last):
    AttributeError: module 'reveal_bench' has no attribute 'Benchmark'
    """

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)

    return get
