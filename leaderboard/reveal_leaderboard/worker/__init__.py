"""The processes beside the server: the worker that scores, its supervisor, and the sender of webhooks."""
