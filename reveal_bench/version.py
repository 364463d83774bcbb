"""The version of this package, which scores, receipts and folders state."""

__version__ = "0.1.0"
