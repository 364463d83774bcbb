"""Processes besides the server: the worker that scores submissions, its supervisor, and the sender of webhooks."""
