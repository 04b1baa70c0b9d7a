"""Metadata in: scene graphs, detections, captions, published subsets, YFCC100M, any table of tags.

Every reader yields a pool: images, and memberships (image_id, column, value). The columns are
``object`` (names of objects), ``attribute`` (``subject(attribute)``), ``general`` (location,
weather, places), ``relation`` (``subject(predicate object)``), ``supercategory``, ``synset``,
``caption_word``, ``subset`` (published ``subject(context)`` of two objects), or a table's own.
"""
