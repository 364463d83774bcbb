"""The Gradio pages: they show what the modules beside this folder computed, and escape every text they show."""
