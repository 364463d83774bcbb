"""Heat maps as files: found, read, and turned into a prediction file (paper 002)."""
