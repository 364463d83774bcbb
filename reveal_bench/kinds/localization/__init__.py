"""localization."""
