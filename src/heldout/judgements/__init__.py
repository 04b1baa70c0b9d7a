"""judgements."""
