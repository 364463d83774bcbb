"""Dataset folders.

They are built from records, validated, described, compared, completed with pictures, and published to the Hub.
"""
