"""Asks a multimodal model every question of a split (paper 000), and turns its answers into a prediction file.

In the order in which it happens: ``questions`` (what is asked), ``pictures`` and ``overlay`` (what the model sees),
``shots`` (the examples of few-shot prompts), ``prompts`` (the words of every prompt), ``running`` and
``inspect_tasks`` (the asking, by inspect_ai), ``answers`` (the parser of what the model said), ``inspect_logs`` (what
inspect_ai logged) and ``run_folder`` (the predictions and everything else that a run leaves). ``callables`` runs a
Python function in place of a model, ``lmms`` goes the way of lmms-eval. What would be sent can be looked at first:
:mod:`reveal_bench.reports.rehearsal`.
"""
