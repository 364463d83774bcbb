"""reveal-leaderboard: a leaderboard whose web process cannot open the holdout it ranks on."""

__version__ = "0.1.0"
