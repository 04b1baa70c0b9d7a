"""The recipe ``contexts``: images in context, the graph over them, distances between them.

``names`` → ``shown`` and ``words`` (what a pool says) → ``policy`` and ``candidates`` (which subsets)
→ ``recipe`` (the test set). From a set: ``subsets`` → ``overlap`` → ``graph`` and ``communities``;
``profiles`` → ``divergence`` → ``distances``; ``unique`` and ``siblings`` for what stands out.
"""
