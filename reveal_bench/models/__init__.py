"""Ask a multimodal model every question of a split (paper 000), and turn its answers into a prediction file.

The main modules, in the order of use, are ``questions`` (the questions of a split), ``pictures`` and ``overlay`` (the
images that the model sees), ``shots`` (the examples of few-shot prompts), ``prompts`` (the wording of every prompt),
``running`` and ``inspect_tasks`` (asking the model through inspect_ai), ``answers`` (the parser of answers),
``inspect_logs`` (the reader of inspect_ai's logs) and ``run_folder`` (the predictions and all other files of a run).
``callables`` runs a Python function instead of a language model; ``lmms`` uses lmms-eval. ``model_client`` sends the
text prompts of a curation. ``endpoints`` contains the rules for all clients. :mod:`reveal_bench.reports.rehearsal`
previews what would be sent.
"""
