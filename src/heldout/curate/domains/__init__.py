"""The recipe ``domains``: rank by similarity, drop small domains and classes, cap the large ones.

``parquet_scan`` (any number of rows, in batches) → ``selection`` (the best k, counts, rules on counts,
caps drawn by hash) → ``splits`` → ``recipe`` (the test set). ``label_leakage`` says what labels tell about
domains, and ``requests`` has the published requests.
"""
