"""Charts and one self-contained HTML file: how people read records.

Figures follow column types and record kinds; nothing here knows where a test set came from.
"""
