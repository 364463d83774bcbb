"""A team's budget as HTML: what is left, and every line of its ledger."""

from __future__ import annotations

from collections.abc import Sequence

from reveal_leaderboard.store.quota import Balance, LedgerRow
from reveal_leaderboard.web.pages.drawing import link, message, table, text, when

__all__ = ["balance_view", "ledger_view"]

MEANING = {"reserved": "set aside", "charged": "charged", "refunded": "given back", "granted": "granted"}


def balance_view(balance: Balance, team: str) -> str:
    """What is left, shown before anything is sent: as figures, as a row of boxes, and as a sentence."""
    spent, pending = balance.charged, balance.pending
    boxes = ["used"] * spent + ["pending"] * pending + ["left"] * balance.left
    drawn = "".join(f'<i class="rv-box-{state}"></i>' for state in boxes[:40])
    today = f"today {min(balance.left, balance.left_today)} left"
    figures = f"<b>{balance.left} of {balance.total} left</b> for this holdout version; {today}."
    under_way = f" {pending} under way." if pending else ""
    again = ""
    if not balance.may_send and balance.next_at is not None:
        again = f" Next possible: {when(balance.next_at)}."
    why = "" if balance.may_send else message("bad", "Nothing more can be sent now.", balance.why)
    return (
        f'<div class="rv-balance"><span class="rv-boxes" aria-hidden="true">{drawn}</span>'
        f"<span>{text(team)}: {figures}{under_way}{again}</span></div>{why}"
    )


def ledger_view(rows: Sequence[LedgerRow], balance: Balance) -> str:
    """Every line, the newest first, with the balance after it."""
    if not rows:
        return message("info", "Nothing was spent yet.", balance.why)
    used, lines = 0, []
    for row in rows:
        used += 0 if row.kind == "granted" else row.amount
        change = "0" if not row.amount else f"{-row.amount:+d}".replace("-", "−")
        about = "" if row.submission_id is None else link("/entry", row.submission_id[:8], id=row.submission_id)
        lines.append(
            f'<tr><td>{when(row.at)}</td><th scope="row">{text(MEANING.get(row.kind, row.kind))}</th>'
            f'<td class="rv-number">{change}</td><td class="rv-number">{used}</td><td>{about}</td>'
            f"<td>{text(row.why)}</td></tr>"
        )
    numbers = [f'<th scope="col" class="rv-number">{title}</th>' for title in ("Change", "Used after")]
    head = ["When", "What", *numbers, "Submission", "Why"]
    shown = table(head, [f"<tbody>{''.join(reversed(lines))}</tbody>"], label="Ledger", css_class="rv-ledger")
    is_over = not balance.may_send and balance.next_at is not None
    reset = f" Next possible: {when(balance.next_at)}." if is_over else ""
    return f'<p class="rv-note">{text(balance.why)}{reset}</p>{shown}'
