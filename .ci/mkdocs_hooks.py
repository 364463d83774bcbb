"""Add pages from outside docs/ to the site, and turn the links to them.

The README, the changelog, CONTRIBUTING, SECURITY, the guides of submissions/ and leaderboard/ and two pages of
simulations become pages. A link from any page to one of them, or from them into docs/, is turned to its page;
a link to other files of the repository becomes plain text, because the site does not contain it. A link to a file that
does not exist stops the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "submissions/README.md": "prediction_files.md",
    "leaderboard/README.md": "leaderboard.md",
    "benchmarks/calibration.md": "calibration.md",
    "benchmarks/colluding.md": "colluding.md",
}
"""File of the repository -> page of the site."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages, their images, and the style of the site."""
    files.append(File.generated(config, "site.css", abs_src_path=str(ROOT / ".ci" / "site.css")))
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_without_front_matter(text)))
        for is_picture, _, target, _ in _LINK.findall(text):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if is_picture and not place.startswith("docs/") and files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, abs_src_path=str(ROOT / place)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: Any, files: Files) -> str:
    """Turn the links of one page."""
    of_page = {site: name for name, site in PAGES.items()}
    name = of_page.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def turned(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        place = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
        if not (ROOT / place).exists():
            raise PluginError(f"{name}: the link to {target} must lead to a file, got none at {place}")
        known = PAGES.get(place) or (place if picture else None)
        if place.startswith("docs/"):
            known = place.removeprefix("docs/")
        if known is None or files.get_file_from_path(known) is None:
            return words
        return f"{picture}[{words}]({known}{anchor})"

    return _outside_code(_LINK, turned, markdown)


def _outside_code(pattern: re.Pattern[str], turned: Any, text: str) -> str:
    """Replace matches of a pattern outside code blocks."""
    parts = re.split(r"(?ms)(^```.*?^```$)", text)
    return "".join(part if part.startswith("```") else pattern.sub(turned, part) for part in parts)


def _without_front_matter(text: str) -> str:
    return text.split("---\n", 2)[2] if text.startswith("---\n") else text
