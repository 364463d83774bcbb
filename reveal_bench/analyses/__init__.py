"""Analyses beyond scores: calibration, curves, thresholds and operating points, and shapes of masks."""
