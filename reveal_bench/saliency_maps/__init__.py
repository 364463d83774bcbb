"""Finds and reads files of heat maps, and turns them into a prediction file (paper 002)."""
