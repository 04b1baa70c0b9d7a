"""An image-text encoder of a user's own: mean colours, and names of colours."""

import numpy as np


class Colours:
    name, dimension, scale, identity = "colours", 3, 10.0, {"colours": 1}

    def __init__(self):
        # The only preprocessing there is at hand: that of a model of ours.
        from heldout.models.adapters.registry import load_model

        self.preprocessing = load_model("ash.py:predict").preprocessing

    def encode_images(self, pixels):
        sums = pixels.astype(np.int64).sum(axis=(1, 2))
        return unit(sums - sums.min(axis=1, keepdims=True) + 500)

    def encode_texts(self, texts):
        words = ["red", "green", "blue"]
        return unit(np.array([[1 + 9 * (word in text) for word in words] for text in texts]))


def unit(rows):
    rows = rows.astype(np.float64)
    return (rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))).astype(np.float32)


def colours():
    return Colours()
