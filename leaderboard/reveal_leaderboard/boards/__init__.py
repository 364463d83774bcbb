"""What visitors are shown of a board: standings, comparisons, exports, rating by readers, new versions."""
