"""Drawing a test set like another one by how often people selected its candidates (ImageNetV2)."""
