"""The exposure meter as HTML: how much of a holdout version the scores shown could have told."""

from __future__ import annotations

import math

from reveal_leaderboard.exposure import Exposure
from reveal_leaderboard.pages.drawing import detail, facts, message, percent, plural, table, text

__all__ = ["exposure_view"]

WORDS = {"low": "low", "watch": "watch", "close": "close the board for a refresh"}


def exposure_view(benchmark: str, meter: Exposure) -> str:
    """One benchmark: the level, the meter, who sent how many."""
    kind = "info" if meter.level == "low" else "bad" if meter.level == "close" else "info"
    head = message(kind, f"{benchmark}: {WORDS[meter.level]}.", meter.sentence)
    known = f"{percent(meter.share)} %" if math.isfinite(meter.share) else "more than all"
    told = {
        "Scored submissions": f"{_meter(meter.n_scored, meter.board_total)} {meter.n_scored} of {meter.board_total}",
        "Most exposed finding": text(meter.finding or "none is shown"),
        "Told about it": f"at most {meter.bits_out:.0f} of the {meter.bits_held:.0f} bits in its labels ({known})",
        "Told to": "" if meter.group is None else text(", ".join(meter.group.teams)),
    }
    return head + facts(told) + _teams(meter)


def _meter(value: int, high: int) -> str:
    return f'<meter min="0" max="{high}" value="{value}">{value} of {high}</meter>'


def _teams(meter: Exposure) -> str:
    if not meter.by_team:
        return ""
    rows = "".join(f'<tr><th scope="row">{text(name)}</th><td>{n}</td></tr>' for name, n in meter.by_team)
    shown = table(["Team", "Scored"], [f"<tbody>{rows}</tbody>"], label="Scored submissions by team")
    groups = [group for group in meter.groups if len(group.teams) > 1]
    alike = "".join(
        f"<li>{text(', '.join(group.teams))}: near-identical predictions, {plural(group.n_shown, 'score')} shown, "
        f"{group.n_held} held back</li>"
        for group in groups
    )
    return detail(f"By team ({len(meter.by_team)})", shown + (f'<ul class="rv-list">{alike}</ul>' if alike else ""))
