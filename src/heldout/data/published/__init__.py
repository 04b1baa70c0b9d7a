"""One reader per published format: test sets, truths, answers, scene graphs, detections, YFCC100M.

Readers of metadata yield a pool: images, and memberships (image_id, column, value). The columns are
``object`` (names of objects), ``attribute`` (``subject(attribute)``), ``general`` (location,
weather, places), ``relation`` (``subject(predicate object)``), ``supercategory``, ``synset``,
``caption_word``, ``subset`` (published ``subject(context)`` of two objects), or a table's own.
"""
