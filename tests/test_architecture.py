"""The architecture (docs/architecture.md), compared with the code: a loop per rule over every file of the packages."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

from reveal_bench.kinds import KINDS
from tests.conftest import ROOT
from tests.syntax import imports_of, names_defined, tree_of

PACKAGES = {"reveal_bench": ROOT / "reveal_bench", "reveal_leaderboard": ROOT / "leaderboard" / "reveal_leaderboard"}

BASE = {
    "findings",
    "geometry",
    "masks",
    "benchmarks",
    "files",
    "arrays",
    "version",
    "lazy",
    "arguments",
    "tables",
    "table_formats",
    "words",
    "printed_tables",
}
BELOW_MODELS = {"dataset", "evaluation", "predictions", "sources", "kinds", "metrics"} | BASE
MAY_IMPORT: dict[str, set[str]] = {
    **dict.fromkeys(BASE, BASE),
    "dicom": BASE,
    "metrics": BASE,
    "predictions": BASE,
    "evaluate_modules": {"metrics"} | BASE,
    "kinds": {"metrics", "predictions"} | BASE,
    "evaluation": {"predictions", "kinds", "metrics"} | BASE,
    "analyses": {"evaluation", "predictions", "kinds", "metrics"} | BASE,
    "exchange": {"evaluation", "kinds", "metrics", "predictions"} | BASE,
    "reader_studies": {"metrics"} | BASE,
    "saliency_maps": {"kinds", "metrics"} | BASE,
    "sources": {"kinds", "dicom"} | BASE,
    "dataset": {"sources", "kinds", "dicom", "metrics"} | BASE,
    "models": BELOW_MODELS,
    "curation": {"models"} | BELOW_MODELS,
    "reports": {"models", "curation", "analyses"} | BELOW_MODELS,
    "viewer": {"evaluation", "kinds", "predictions"} | BASE,
    "phantom": {"kinds", "dicom"} | BASE,
    "scale": {"dataset", "saliency_maps", "sources", "kinds"} | BASE,
}
"""Room of reveal_bench -> rooms it may import. `cli`, `api` and the package itself may import anything; nobody imports
`cli`, and only `cli` and the package import `api`.
"""

STORED = {"addresses", "settings", "store"}
SHOWN = STORED | {"accounts", "release", "boards"}
LEADERBOARD_MAY_IMPORT: dict[str, set[str]] = {
    "addresses": set(),
    "settings": {"addresses"},
    "store": {"settings"},
    "accounts": STORED,
    "release": STORED | {"accounts"},
    "boards": STORED | {"accounts", "release"},  # a board shows released figures
    "custody": STORED | {"accounts", "release"},
    "worker": SHOWN | {"custody"},
    "web": SHOWN | {"custody"},
    "readers": SHOWN | {"custody", "web"},
    "cli": SHOWN | {"custody", "worker", "web", "readers"},
}
"""Room of reveal_leaderboard -> rooms of it that it may import."""

VAULT = {"Signer", "append"}
"""Functions of `release.receipts` that need the vault: only a worker and an operator's command sign."""

SAY_NOTHING = {
    "utils", "helpers", "common", "constants", "types", "errors", "config", "logging", "validators", "base", "registry",
}  # fmt: skip

METAPHORS = re.compile(r"\b(Darkroom|ReadingRoom|Seat|Desk|Keeper|Workshop)\b")


@cache
def modules() -> dict[str, Path]:
    """Return dotted name -> file of the two packages; a package has the name of its ``__init__``."""
    graph = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            graph[".".join((package, *parts)).removesuffix(".__init__")] = path
    return graph


@cache
def imported_by(name: str) -> list[str]:
    """Modules of the two packages that a module imports, wherever in the file it does."""
    homes = (full if full in modules() else module for full, module in imports_of(modules()[name]))
    return [other for other in homes if other in modules()]


def room_of(name: str) -> str:
    """First part of a module's name below its package; the package itself has none."""
    return name.partition(".")[2].split(".")[0]


@pytest.mark.parametrize(
    ("package", "may_import"), [("reveal_bench", MAY_IMPORT), ("reveal_leaderboard", LEADERBOARD_MAY_IMPORT)]
)
def test_rooms_import_one_way(package: str, may_import: dict[str, set[str]]) -> None:
    own = [name for name in modules() if name.startswith(package)]
    assert {*map(room_of, own)} - {"", "api", "cli", "__main__"} == may_import.keys() - {"cli"}
    wrong = [
        f"{name} imports {other}"
        for name in own
        for other in imported_by(name)
        if other.startswith(package)
        and room_of(name) in may_import
        and room_of(other) not in may_import[room_of(name)] | {room_of(name), ""}
    ]
    assert wrong == []


def test_one_module_parses_tables() -> None:
    parsers = {"csv.reader", "csv.DictReader", "openpyxl.load_workbook"}
    callers = {
        name
        for name, path in modules().items()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in parsers
    }
    assert callers == {"reveal_bench.table_formats"}


@pytest.mark.parametrize("room", ["web", "readers"])
def test_what_faces_visitors_has_no_way_to_the_vault(room: str) -> None:
    receipts = "reveal_leaderboard.release.receipts"
    for name, path in modules().items():
        if name.startswith(f"reveal_leaderboard.{room}"):
            taken = {full for full, _ in imports_of(path)}
            assert "worker" not in map(room_of, imported_by(name)), name
            assert taken.isdisjoint(f"{receipts}.{one}" for one in VAULT), name
            if receipts in taken:  # the module itself: then by the functions called
                text = path.read_text(encoding="utf-8")
                assert not any(f"receipts.{one}(" in text for one in VAULT), name


def test_no_circle_of_files() -> None:
    """A package's face only hands names on, under TYPE_CHECKING or when they are asked for: its arrows do not count."""
    arrows = {
        name: {other for other in imported_by(name) if other != name}
        for name, path in modules().items()
        if name not in PACKAGES
    }
    circles, done = [], set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        if name in way:
            circles.append(" -> ".join((*way[way.index(name) :], name)))
        elif name not in done:
            for other in sorted(arrows.get(name, ())):
                visit(other, (*way, name))
            done.add(name)

    for name in arrows:
        visit(name, ())
    assert circles == []


def test_nobody_imports_a_command_line_and_the_library_does_not_know_the_leaderboard() -> None:
    for name in modules():
        package, *rest = name.split(".")
        if rest[:1] not in ([], ["cli"], ["__main__"]):
            rooms = {".".join(other.split(".")[:2]) for other in imported_by(name)}
            assert f"{package}.cli" not in rooms, name
            assert rest[:1] == ["api"] or f"{package}.api" not in rooms or package == "reveal_leaderboard", name
        if package == "reveal_bench":
            assert not any(other.startswith("reveal_leaderboard") for other in imported_by(name)), name


HOMES: dict[str, tuple[str, ...]] = {
    "pydicom": ("reveal_bench.dicom.", "reveal_bench.exchange.dicom_"),
    "evaluate": ("reveal_bench.evaluate_modules",),  # hardly maintained: nothing else may need it
    "datatrove": ("reveal_bench.scale.local",),
    **dict.fromkeys(("gdcm", "openjpeg", "jpeg_ls", "pylibjpeg"), ()),  # decoders: pydicom finds them
}
"""Library -> beginnings of the modules that may import it."""


def test_some_libraries_stay_at_home() -> None:
    wrong = [
        f"{name} imports {library}"
        for name, path in modules().items()
        for library in {module.split(".")[0] for _, module in imports_of(path)} & HOMES.keys()
        if not name.startswith(HOMES[library])
    ]
    assert wrong == []


def test_only_the_package_itself_leads_to_the_evaluate_modules() -> None:
    home = "reveal_bench.evaluate_modules"
    outside = {name for name in modules() if not name.startswith(home)}
    assert {name for name in outside if any(other.startswith(home) for other in imported_by(name))} == {"reveal_bench"}


def test_names_say_something() -> None:
    for path in modules().values():
        assert path.stem not in SAY_NOTHING, path
        assert not METAPHORS.search(path.read_text(encoding="utf-8")), path


WITH_INTERVAL = {
    "Estimate": "reveal_bench.metrics.intervals",
    "ReleasedEstimate": "reveal_leaderboard.release.release",  # rounded, with a band of cases
    "Figure": "reveal_bench.exchange.facts",  # exact decimals, as a receipt or a score document has them
}
"""Classes with a value and the bounds of its interval; every other class holds one of these."""


def classes_with_modules() -> list[tuple[ast.ClassDef, str]]:
    return [
        (n, name) for name, path in modules().items() for n in ast.walk(tree_of(path)) if isinstance(n, ast.ClassDef)
    ]


def test_numbers_with_an_interval_are_estimates() -> None:
    intervals = {
        node.name: module
        for node, module in classes_with_modules()
        if {"value", "low", "high"} <= {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
    }
    assert intervals == WITH_INTERVAL


def test_class_names_are_unique() -> None:
    counts = Counter(node.name for node, _ in classes_with_modules())
    assert [name for name, n in counts.items() if n > 1] == []


def test_every_file_says_what_it_is_and_is_as_long_as_its_subject() -> None:
    for path in [*modules().values(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 600, path
        if path in modules().values():
            doc = ast.get_docstring(tree_of(path))
            assert doc, path
            assert doc.count("Conventions\n---") <= 1, f"{path}: one docstring, not several"


REFERENCE = re.compile(r":(?:mod|func|class|data|meth|attr):`(?:[^`<]*<)?~?([\w.]+)(?:\(\))?>?`")


def is_defined(full: str) -> bool:
    """Return True if a dotted name leads to a module of the packages, or to a name that one defines or re-exports."""
    module, _, rest = full.rpartition(".")
    while module and module not in modules():
        module, _, last = module.rpartition(".")
        rest = f"{last}.{rest}"
    if full in modules() or not module:
        return full in modules()
    path, name = modules()[module], rest.split(".")[0]
    handed_on = {imported.rpartition(".")[2] for imported, _ in imports_of(path)} if path.name == "__init__.py" else ()
    return name in names_defined(path) or name in handed_on


def test_references_in_docstrings_lead_somewhere() -> None:
    wrong = []
    for name, path in modules().items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for target in REFERENCE.findall(path.read_text(encoding="utf-8")):
            full = package + target if target.startswith(".") else target
            if full.split(".")[0] in PACKAGES and not is_defined(full):
                wrong.append(f"{name}: {full}")
    assert wrong == []
    assert is_defined("reveal_bench.masks.encode_mask")
    assert not is_defined("reveal_bench.masks.encode_masks")
    assert not is_defined("reveal_leaderboard.custody.cases")


def test_no_file_has_the_marks_of_a_merge() -> None:
    """Python would not run with them, but pages, templates and documents would show them."""
    ends = (".md", ".html", ".css", ".js", ".toml", ".yaml", ".yml", ".txt", ".c")
    folders = ("reveal_bench", "leaderboard", "docs", "dataset_cards", "submissions", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in ends]
    assert len(files) > 50
    assert [path for path in files if re.search(r"^(<{7}|>{7}) ", path.read_text(encoding="utf-8"), re.M)] == []


def test_one_place_each() -> None:
    """Names that are defined once: array types, the writing of a whole file, the path of a split's shards."""
    defined = defaultdict(list)
    for name, path in modules().items():
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                defined[node.targets[0].id].append(name)
            elif isinstance(node, ast.FunctionDef):
                defined[node.name].append(name)
    for once in ("FloatArray", "IntArray", "BoolArray", "write_whole", "split_shards"):
        assert len(defined[once]) == 1, f"{once}: {defined[once]}"


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import reveal_bench", "numpy pyarrow typer datasets inspect_ai openai matplotlib jinja2"),
        (
            "import reveal_bench.cli",
            "numpy pyarrow scipy pandas datasets evaluate PIL rich inspect_ai openai matplotlib jinja2",
        ),
        ("import reveal_bench.kinds", "numpy pyarrow datasets"),
        ("import reveal_bench.models.run_folder", "pyarrow datasets inspect_ai openai"),
        (
            "from reveal_bench.scale import build, engine, maps, validate; import reveal_bench.cli.engine",
            "datatrove loguru",
        ),
        ("import reveal_bench.predictions", "pyarrow scipy pandas datasets PIL"),
        ("import reveal_bench.kinds.localization.scoring", "pyarrow scipy pandas datasets"),
    ],
)
def test_imports_are_light(statement: str, forbidden: str) -> None:
    code = f"import sys; {statement}; print(sorted(set({forbidden.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_the_picture_is_that_of_the_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "docs" / "draw_architecture.py"
    spec = importlib.util.spec_from_file_location("draw_architecture", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "tree_of", tree_of)  # the same, read once
    drawn = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert module.draw() == drawn, "run python docs/draw_architecture.py"


# What differs between kinds of benchmark is asked of the kind: no dispatch on it outside reveal_bench/kinds

HOME = PACKAGES["reveal_bench"] / "kinds"
NAMES = {*KINDS, *(kind.config for kind in KINDS.values())}
"""Texts that identify a kind: its name, and the name of its main config."""
CONSTANTS = {name.upper() for name in KINDS}
"""Pattern of the names that may be imported for a kind."""
BUILT_IN = {"list", "tuple", "dict", "str", "bytes", "int", "float", "Mapping", "Sequence", "Sized"}


def classes_of_kinds() -> set[str]:
    """Names of all classes in the folders of the kinds: records, predictions, manifests, rows, tallies."""
    modules = (tree_of(path) for name in KINDS for path in (HOME / name).glob("*.py"))
    return {node.name for module in modules for node in module.body if isinstance(node, ast.ClassDef)}


def names_in(node: ast.expr) -> set[str]:
    """Names and attributes anywhere in an expression."""
    names = (n.id if isinstance(n, ast.Name) else n.attr for n in ast.walk(node)
             if isinstance(n, ast.Name | ast.Attribute))  # fmt: skip
    return set(names)


def texts_in(node: ast.expr) -> set[object]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def is_of_kind(node: ast.expr) -> bool:
    """Return True if an expression ends in "kind", as `run.kind`, `kind_name` and `kind.name` do."""
    if isinstance(node, ast.Attribute):
        return "kind" in node.attr or (node.attr in ("name", "config") and is_of_kind(node.value))
    return isinstance(node, ast.Name) and "kind" in node.id.lower()


def dispatches(tree: ast.AST, classes: set[str]) -> list[int]:
    """Lines where code asks of what kind something is."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            asks_class = node.func.id in ("isinstance", "issubclass") and names_in(node.args[1]) & classes
            is_of_type = node.func.id == "isinstance" and names_in(node.args[0]) <= {"rows", "records", "manifest"}
            if asks_class or (is_of_type and not names_in(node.args[1]) & BUILT_IN):
                lines.append(node.lineno)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = set().union(*map(texts_in, sides)) & NAMES or set().union(*map(names_in, sides)) & CONSTANTS
            is_type = any(isinstance(side, ast.Call) and names_in(side.func) == {"type"} for side in sides)
            if (names and any(map(is_of_kind, sides))) or (is_type and set().union(*map(names_in, sides)) & classes):
                lines.append(node.lineno)
        elif isinstance(node, ast.Dict):
            keys = [key for key in node.keys if key is not None]
            named = {key.value for key in keys if isinstance(key, ast.Constant)} & NAMES
            typed = {name for key in keys for name in names_in(key)} & (classes | CONSTANTS)
            lines += [node.lineno] * (len(named) > 1 or len(typed) > 1)
        elif isinstance(node, ast.MatchValue):
            lines += [node.lineno] * bool(texts_in(node.value) & NAMES or names_in(node.value) & CONSTANTS)
        elif isinstance(node, ast.MatchClass):
            lines += [node.lineno] * bool(names_in(node.cls) & classes)
    return lines


def test_the_search_finds_every_form_of_dispatch() -> None:
    code = """
if isinstance(rows, CaseRows | StudyRows): ...
if run.kind == "tasks": ...
if kind_name in ("tasks", "findings"): ...
{"localization": 1, "tasks": 2}
match name:
    case "findings": ...
if kind.name != "localization": ...
if kind is LOCALIZATION: ...
if type(record) is StudyRecord: ...
if isinstance(rows, Unknown): ...
{"multilabel": "labels", "tasks": "prompts"}
match record:
    case TaskRecord(): ...
{StudyRecord: 1, TaskRecord: 2}
if config == "tasks" or job.kind == "rank" or isinstance(x, Path) or isinstance(rows, list): ...
{"tasks": 1, "other": 2}
"""
    lines = [2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15]
    assert sorted(dispatches(ast.parse(code), classes_of_kinds())) == lines


def test_only_kinds_dispatch_on_kinds() -> None:
    classes = classes_of_kinds()
    messages = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in modules().values()
        if not path.is_relative_to(HOME)
        for line in dispatches(tree_of(path), classes)
    ]
    assert messages == []
