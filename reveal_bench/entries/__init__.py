"""Prediction files as text: bytes within limits, formats, entries one by one, the report of what is wrong with them.

Nothing here knows a kind of benchmark: what an entry must hold is checked by :mod:`reveal_bench.kinds`.
"""
