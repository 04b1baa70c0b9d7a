"""The recipe ``domains``: rank by similarity, drop small domains and classes, cap the large ones.

``rows`` (any number of them, in batches) → ``reading`` (id, similarity, class, domain) → ``keys`` and
``top`` (the best k, exactly) → ``counting`` → ``choosing`` (rules on counts) → ``capping`` (draws by hash)
→ ``selection`` (the passes in turn) → ``recipe`` (the test set). ``leakage`` and ``suspects`` say what
labels tell about domains, ``splits`` makes parts, ``presets`` are published requests, and ``published``
reads the released lists of CLIP-GeoYFCC.
"""
