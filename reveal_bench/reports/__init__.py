"""HTML reports with figures and tables on datasets, model runs and curations.

Within this package, only the command line and the Python API import these modules.
"""
