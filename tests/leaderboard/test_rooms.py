"""Who may import whom inside the leaderboard, shown by walking the imports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import reveal_leaderboard

from tests.syntax import imports_of

FOLDER = Path(reveal_leaderboard.__file__).parent
STORED = {"settings", "store"}
SHOWN = STORED | {"accounts", "release", "boards"}
ROOMS = {
    "settings": set(),
    "store": {"settings"},
    "accounts": STORED,
    "release": STORED | {"accounts"},
    "boards": STORED | {"accounts", "release"},  # a board shows what was released
    "custody": STORED | {"accounts", "release"},
    "worker": SHOWN | {"custody"},
    "web": SHOWN | {"custody"},
    "readers": SHOWN | {"custody", "web"},
    "cli": SHOWN | {"custody", "worker", "web", "readers"},
}
"""Room -> the rooms that it may import beside itself."""
VAULT = {"Signer", "append", "append_missing"}
"""What of `release.receipts` needs the vault: only a worker and an operator's command sign."""


def modules() -> dict[str, Path]:
    found = {}
    for path in FOLDER.rglob("*.py"):
        parts = path.relative_to(FOLDER).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(module: str) -> Iterator[tuple[str, str]]:
    """(module imported, name taken of it) of everything that a module imports of the leaderboard, anywhere in it."""
    for full, source in imports_of(MODULES[module]):
        package, _, name = full.partition(".")
        if package == "reveal_leaderboard":
            yield (name, "") if name in MODULES else (source.partition(".")[2], full.rpartition(".")[2])


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    members = [name for name in MODULES if name.split(".")[0] == room]
    assert members
    wrong = {
        (module, source)
        for module in members
        for source, _ in imports(module)
        if source and source.split(".")[0] not in ROOMS[room] | {room}
    }
    assert wrong == set()


def test_every_module_lies_in_a_room() -> None:
    assert {name.split(".")[0] for name in MODULES if name} == {*ROOMS, "__main__"}


@pytest.mark.parametrize("room", ["web", "readers"])
def test_what_faces_visitors_has_no_way_to_the_vault(room: str) -> None:
    for module in (name for name in MODULES if name.split(".")[0] == room):
        taken = set(imports(module))
        assert not any(source.split(".")[0] == "worker" for source, _ in taken), module
        assert not any(source == "release.receipts" and name in VAULT for source, name in taken), module
        if ("release.receipts", "") in taken:  # the module itself: then by what is called of it
            text = MODULES[module].read_text(encoding="utf-8")
            assert not any(f"receipts.{name}(" in text for name in VAULT), module
