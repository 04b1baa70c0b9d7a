"""Intervals, bootstrap, paired tests, multiple comparisons, ranks, agreement and sample sizes.

Pure functions on arrays: nothing here knows about models, test sets or files. Importing a module
loads numpy alone; scipy is imported inside the functions that need it.
"""
