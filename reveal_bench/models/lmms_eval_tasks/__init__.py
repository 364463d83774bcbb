"""Parts of an export for lmms-eval: templates, and the Python functions that an exported task names."""
