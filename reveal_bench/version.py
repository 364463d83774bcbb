"""The version of this package, which is recorded in scores, receipts and dataset folders."""

__version__ = "0.1.0"
