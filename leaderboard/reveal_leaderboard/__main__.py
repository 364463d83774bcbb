"""``python -m reveal_leaderboard``."""

from reveal_leaderboard.cli import app

app()
