"""Storage of a leaderboard: database, uploaded files, backups and audits."""
