"""Models and what they gave: adapters, predictions, embeddings."""
