"""What an export for lmms-eval is made of: templates, and the functions that its tasks name."""
