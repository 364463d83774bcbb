"""People, teams, roles, sessions and tokens."""
