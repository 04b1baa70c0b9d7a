"""Hard: the images that models get plainly wrong, every label of them reviewed (ImageNet-M's way)."""
