"""Readers of published answers: each turns one known file into judgements.

They are tolerant of what does not matter (further keys, order) and refuse what does, in one line
that names the file.
"""
