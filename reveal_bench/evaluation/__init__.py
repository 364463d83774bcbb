"""Results of checked predictions for every kind of benchmark: scores, comparisons, ranks, receipts.

``score`` (one file), ``compare`` (systems against each other), ``receipts`` (signed scores, checked offline),
``baselines`` (the minimum to beat), ``prices`` (cost of tokens), ``compat`` (the published draws of paper 002).
"""
