"""Divide build, validate and saliency into tasks that run on one or many machines (``--engine datatrove``)."""
