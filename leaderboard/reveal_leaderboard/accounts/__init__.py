"""User accounts: people, teams, roles, sessions and tokens."""
