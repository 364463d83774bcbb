"""Content of the boards: standings, comparisons, exports, galleries, rating by readers, and new versions."""
