"""reveal-leaderboard: a leaderboard whose web process cannot open the holdouts."""

__version__ = "0.1.0"
