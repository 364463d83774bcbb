"""How a benchmark is made from studies and reports, and refreshed later (paper 004, sections 2.1 to 2.3).

The steps, in the order in which they happen: extract, sample, assign, import votes, consensus, select, split; then
refresh and report. Each is a function of files in a :class:`~reveal_bench.curation.folder.CurationFolder`.
"""
