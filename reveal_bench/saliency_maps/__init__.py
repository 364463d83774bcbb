"""Find and read files of heat maps, and turn the maps into a prediction file (paper 002)."""
