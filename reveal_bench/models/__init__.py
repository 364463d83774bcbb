"""Asks a multimodal model every question of a split (paper 000), and turns its answers into a prediction file.

In the order in which it happens: ``questions`` (what is asked), ``pictures`` and ``overlay`` (what the model sees),
``shots`` (the examples of few-shot prompts), ``prompts`` (what the model is told), ``tasks`` and ``running`` (the
asking, by inspect_ai), ``answers`` (what it said), ``logs`` and ``outputs`` (the run folder, with its predictions).
``callables`` runs a Python function in place of a model, ``lmms`` goes the way of lmms-eval, ``rehearsal`` shows what
would be sent.
"""
