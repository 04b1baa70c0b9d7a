"""Annotation: classes for the images of a pool, from image-text models.

``class_texts`` makes vectors of classes, ``assign`` finds the nearest classes in memory that grows with
neither images nor classes, ``label_pool`` writes them down.
"""
