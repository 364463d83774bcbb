"""The version of this package, beside its data: scores, receipts and folders state it."""

__version__ = "0.1.0"
