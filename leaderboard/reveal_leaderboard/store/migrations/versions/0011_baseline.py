"""The tables of the first release, from which all migrations start; they are created from `tables.py`."""

revision = "0011"
down_revision = None
