"""Confined child processes that read uploads and score predictions; no process has both an upload and references.

Conventions
-----------
* The *parse child* sees one uploaded file and the public manifest. It returns a lint report and, for a file without
  errors, writes the predictions as canonical arrays (:mod:`.arrays`).
* The *score child* sees canonical arrays and a holdout, never an upload. It writes exact per-case rows into the vault
  (:func:`.custody.cases_file`) and returns the scores that may be shown. The *rank child* sees exact rows of the vault
  and nothing else.

A child is forked from a *template*, a process with loaded libraries (:mod:`.fork_server`), confines itself
(:mod:`.sandbox`) and answers once. A child receives its files already open, so it need not open any. Its answer is
checked before use. However the child ends, the sender sees one of a few fixed outcomes, which depend only on the
upload.

>>> with Custody(scratch) as custody:                                              # doctest: +SKIP
...     parsed = custody.parse(upload, manifest, name="model.jsonl", canonical=folder / "canonical.npz")
...     outcome = custody.score(folder / "canonical.npz", holdout, "holdout", policy=policy, vault=vault,
...                             submission_id="abc")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reveal_bench.lazy import getter

if TYPE_CHECKING:
    from reveal_leaderboard.custody.custody import Custody, ParseFailed, ScoreFailed, cases_file
    from reveal_leaderboard.custody.limits import BOARD_LIMITS, MOST_MASK_RUNS, PARSE_LIMITS, SCORE_LIMITS, JailLimits
    from reveal_leaderboard.custody.replies import Lint, Parsed

__all__ = [
    "BOARD_LIMITS", "MOST_MASK_RUNS", "PARSE_LIMITS", "SCORE_LIMITS", "Custody", "JailLimits", "Lint", "ParseFailed",
    "Parsed", "ScoreFailed", "cases_file",
]  # fmt: skip

_WHERE = dict.fromkeys(__all__, "limits")
_WHERE |= dict.fromkeys(("Custody", "ParseFailed", "ScoreFailed", "cases_file"), "custody")
_WHERE |= dict.fromkeys(("Lint", "Parsed"), "replies")


# imported on first use, because a template imports modules of this package and must not load the server's modules
if not TYPE_CHECKING:  # lets type checkers refuse misspelt names
    __getattr__ = getter(__name__, _WHERE)
