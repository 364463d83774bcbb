"""Dataset folders.

Build them from records, validate, describe and compare them, attach pictures, publish to the Hub.
"""
