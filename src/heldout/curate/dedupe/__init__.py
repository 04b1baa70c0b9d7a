"""Near duplicates: found, judged, resolved."""
