"""Draw docs/architecture.svg from the imports of the code: ``python docs/draw_architecture.py``.

A box is a room: a package, or a module next to the packages. :data:`ROWS` gives its position. An arrow runs from a room
to one that it imports; it is left out if other arrows lead to the same room by a longer path. A test compares the
drawing with the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"reveal_bench": ROOT / "reveal_bench", "reveal_leaderboard": ROOT / "leaderboard" / "reveal_leaderboard"}

ROWS: dict[str, list[list[str]]] = {
    "reveal_leaderboard": [
        ["", "cli", ""],
        ["readers", "", ""],
        ["web", "", "worker"],
        ["", "custody", ""],
        ["boards", "", ""],
        ["", "release", ""],
        ["accounts", "", ""],
        ["", "store", ""],
        ["", "settings", ""],
        ["", "addresses", ""],
    ],
    "reveal_bench": [
        ["", "", "cli", "", ""],
        ["", "", "api", "", ""],
        ["", "reports", "", "", ""],
        ["curation", "analyses", "scale", "", "exchange"],
        ["", "models", "viewer", "saliency_maps", "reader_studies"],
        ["dataset", "", "evaluation", "", ""],
        ["sources", "", "", "", "phantom"],
        ["", "kinds", "", "evaluate_modules", ""],
        ["predictions", "", "metrics", "", ""],
        ["", "benchmarks", "", "masks", "dicom"],
        ["findings", "", "geometry", "", ""],
    ],
}
"""Package -> rows of its rooms from top to bottom, with "" for an empty column; without :data:`EVERYBODY`."""

EVERYBODY = {
    "files",
    "arrays",
    "version",
    "arguments",
    "lazy",
    "tables",
    "table_formats",
    "words",
    "printed_tables",
    "__main__",
}
BOX, GAP, ROW = (134, 34), 12, 70


def tree_of(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement below a node; expressions are skipped, because they contain no statements."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def rooms_of(package: str) -> dict[str, set[str]]:
    """Return for each room the rooms of the same package that any of its files imports."""
    folder = PACKAGES[package]
    arrows: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        room = path.relative_to(folder).parts[0].removesuffix(".py")
        if room in {"__init__", *EVERYBODY}:
            continue
        imports = arrows.setdefault(room, set())
        for node in statements(tree_of(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            imports |= {name.split(".")[1] for name in names if name.startswith(f"{package}.")}
    return {room: {to for to in imports if to in arrows and to != room} for room, imports in arrows.items()}


def shortest(arrows: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the arrows (room, imported room) without those that a longer path of arrows replaces."""

    def reached(room: str, seen: set[str]) -> set[str]:
        for other in arrows[room] - seen:
            seen.add(other)
            reached(other, seen)
        return seen

    return sorted(
        (room, to)
        for room, imports in arrows.items()
        for to in imports
        if not any(to in reached(other, set()) for other in imports - {to})
    )


def draw() -> str:
    """Return the picture as SVG text; the same code gives the same text.

    Raises
    ------
    ValueError
        If a room is missing from `ROWS`, or `ROWS` names a room that does not exist.
    """
    parts: list[str] = []
    left, heights = 20.0, []
    for package, rows in ROWS.items():
        arrows = rooms_of(package)
        unplaced = set(arrows) ^ {room for row in rows for room in row if room}
        if unplaced:
            raise ValueError(
                f"`ROWS` must place every room of {package} once, differs in {', '.join(sorted(unplaced))}"
            )
        width = max(len(row) for row in rows) * (BOX[0] + GAP) + GAP
        places = dict(_places(rows, left + GAP))
        parts.append(f'<text x="{left + width / 2:g}" y="30" class="package">{escape(package)}</text>')
        parts += [_arrow(places[room], places[to]) for room, to in shortest(arrows)]
        parts += [_box(room, place) for room, place in places.items()]
        left, heights = left + width + 30, [*heights, 60 + ROW * len(rows)]
    size = f'width="{left:g}" height="{max(heights):g}" viewBox="0 0 {left:g} {max(heights):g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n{_STYLE}\n' + "\n".join(parts) + "\n</svg>\n"


def _places(rows: list[list[str]], left: float) -> Iterable[tuple[str, tuple[float, float]]]:
    """Yield every room with the upper left corner (x, y) of its box, in pixels."""
    for i, row in enumerate(rows):
        yield from ((room, (left + j * (BOX[0] + GAP), 50.0 + i * ROW)) for j, room in enumerate(row) if room)


def _box(room: str, place: tuple[float, float]) -> str:
    x, y = place
    box = f'<rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="6"/>'
    return f'{box}<text x="{x + BOX[0] / 2:g}" y="{y + 22:g}">{escape(room)}</text>'


def _arrow(above: tuple[float, float], below: tuple[float, float]) -> str:
    x1, y1, x2, y2 = above[0] + BOX[0] / 2, above[1] + BOX[1], below[0] + BOX[0] / 2, below[1]
    bend = (y2 - y1) / 2
    curve = f"M{x1:g} {y1:g} C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2 - 5:g}"
    return f'<path d="{curve}" marker-end="url(#tip)"/>'


_STYLE = """<title>Parts of both packages and what they import</title>
<style>
  svg { background: #fff; font: 14px system-ui, sans-serif }
  rect { fill: #eef3f8; stroke: #34618c; stroke-width: 1.2 }
  text { text-anchor: middle; fill: #16212c }
  .package { font-weight: 600; font-size: 16px }
  path { fill: none; stroke: #7b8b9a; stroke-width: 1.3 }
  marker path { fill: #7b8b9a; stroke: none }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0 L8 4 L0 8 z"/></marker></defs>"""


if __name__ == "__main__":
    (ROOT / "docs" / "architecture.svg").write_text(draw(), encoding="utf-8")
