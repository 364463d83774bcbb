"""Evaluation of checked predictions: scores, comparisons, rankings and receipts for every kind of benchmark.

``score`` scores one file, ``compare`` compares and ranks systems, ``receipts`` checks signed scores offline,
``baselines`` computes scores to beat, ``prices`` computes the cost of tokens, and ``compat`` reproduces the published
tables of paper 002.
"""
