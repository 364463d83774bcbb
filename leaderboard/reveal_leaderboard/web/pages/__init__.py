"""The Gradio pages, which show results of other modules and escape every text."""
