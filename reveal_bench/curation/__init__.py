"""How a benchmark is made from studies and reports, and refreshed later (paper 004, sections 2.1 to 2.3).

The steps, in the order in which they happen, each a function of files in a
:class:`~reveal_bench.curation.folder.CurationFolder`, whose tables are in ``tables``:

* ``extract`` labels from the reports of ``report_tables``, by ``rules`` on their ``sentences``, or by ``model_engine``
  with the questions of ``report_prompts``;
* ``sample`` the studies that readers see, ``assign`` them to readers, import their ``votes``;
* find the ``consensus``, with ``comments`` read by rules, and ``select`` the benchmark;
* ``split`` it into a released and a holdout half that are in ``balance``; later ``refresh`` it.

The report of a curation is :mod:`reveal_bench.reports.curation`; how a model is asked is
:mod:`reveal_bench.models.model_client`.
"""
