"""Parts of an export for lmms-eval: templates, and the functions that its tasks name."""
