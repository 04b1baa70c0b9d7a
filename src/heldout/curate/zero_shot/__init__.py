"""Annotation: classes for the images of a pool, from image-text models.

``embedding`` makes vectors of images, ``class_texts`` of classes, ``assigning`` finds the nearest
classes in memory that grows with neither, ``zero_shot`` writes them down.
"""
