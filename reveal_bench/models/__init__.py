"""Asks a multimodal model every question of a split (paper 000), and turns its answers into a prediction file.

In the order of use: ``questions`` (the questions), ``pictures`` and ``overlay`` (the images that the model sees),
``shots`` (the examples of few-shot prompts), ``prompts`` (the wording of every prompt), ``running`` and
``inspect_tasks`` (asking by inspect_ai), ``answers`` (the parser of answers), ``inspect_logs`` (the logs of inspect_ai)
and ``run_folder`` (the predictions and all other files of a run). ``callables`` runs a Python function instead of a
model, ``lmms`` uses lmms-eval. ``model_client`` asks the text prompts of the curation, under the ``endpoints`` rules
for all clients. :mod:`reveal_bench.reports.rehearsal` previews what would be sent.
"""
