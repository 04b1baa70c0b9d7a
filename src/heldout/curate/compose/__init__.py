"""The recipe ``compose``: cut-out objects on backgrounds, one factor at a time."""
