"""The recipe ``contexts``: images in context, the graph over them, distances between them.

``vocabulary`` and ``subsets`` (what a pool says, which subsets) → ``recipe`` (the test set). From a set:
``subsets`` → ``graph`` (overlaps, communities) → ``distance``; ``describe`` for what is unique about each.
``split``, ``subpopulation`` and ``domain_splits`` make training and test parts; ``training_conflicts``
says which training subsets help which test subsets.
"""
