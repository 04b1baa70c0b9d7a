"""The recipe ``compose``: cut-out objects on backgrounds, every factor controlled (SI-SCORE)."""
