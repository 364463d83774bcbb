"""Divides work into tasks that run on one machine or many: build, validate and saliency with ``--engine datatrove``."""
