"""Makes a benchmark from studies and reports, and refreshes it later (paper 004, sections 2.1 to 2.3).

The steps in their order. Each is a function of files in a :class:`~reveal_bench.curation.folder.CurationFolder`;
``tables`` defines the rows of its tables:

* ``extract`` labels from the reports of ``report_tables``, by ``rules`` on their ``sentences``, or by ``model_engine``
  with the questions of ``report_prompts``;
* ``sample`` the studies that readers see, ``assign`` them to readers, import their ``votes``;
* find the ``consensus``, with ``comments`` read by rules, and ``select`` the benchmark;
* ``split`` it into a released and a holdout half that are in ``balance``; later ``refresh`` it.

The report of a curation is :mod:`reveal_bench.reports.curation`; models are asked by
:mod:`reveal_bench.models.model_client`.
"""
