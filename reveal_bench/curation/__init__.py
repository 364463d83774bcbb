"""Make a benchmark from studies and their reports, and later versions of it (paper 004, sections 2.1 to 2.3).

The steps are listed in order. Each step reads and writes files of a
:class:`~reveal_bench.curation.folder.CurationFolder`; ``tables`` defines the columns of these files.

* ``extract`` labels from the reports of ``report_tables``, by ``rules`` on their ``sentences``, or by ``model_engine``
  with the questions of ``report_prompts``.
* ``sample`` the studies that readers see, ``assign`` them to readers, and import the readers' ``votes``.
* Find the ``consensus``, with ``comments`` read by rules, and ``select`` the studies of the benchmark.
* ``split`` these studies into a released and a holdout half, compare the halves (``balance``), and later ``refresh``
  the benchmark.

:mod:`reveal_bench.reports.curation` writes the report of a curation; :mod:`reveal_bench.models.model_client` sends
requests to models.
"""
