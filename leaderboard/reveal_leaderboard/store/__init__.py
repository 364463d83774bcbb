"""The database and the stored files of a leaderboard, with backups and audits."""
