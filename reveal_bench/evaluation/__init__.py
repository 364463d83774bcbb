"""What is made of checked predictions, the same way for every kind of benchmark: scores, comparisons, ranks, receipts.

``score`` (one file), ``compare`` (systems against each other), ``receipts`` (signed scores, checked offline),
``baselines`` (the floor to beat), ``prices`` (cost of tokens), ``compat`` (the published draws of paper 002).
"""
