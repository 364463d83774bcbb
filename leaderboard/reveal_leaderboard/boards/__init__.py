"""Boards for visitors: standings, comparisons, exports, rating by readers, new versions."""
