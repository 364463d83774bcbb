"""The Gradio pages: they show what other modules computed, and escape every text."""
