"""A dataset folder as one HTML page to look at: counts, prevalence, acquisition, and example radiographs.

The page needs nothing from the network: style and pictures are in it. It shows what the folder holds, so it is bound
by the same terms; :func:`write_report` says so when they restrict the pictures, and never writes into the folder.

* :mod:`.numbers`: shares with intervals;
* :mod:`.figures`: bars, co-occurrence, tables;
* :mod:`.films`: radiographs with what was drawn on them;
* :mod:`.examples`: which rows are shown;
* :mod:`.page`: the whole.
"""

from __future__ import annotations

from reveal_bench.builders.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
