"""Bounded jobs in batch mode: the chain of a vertex inside the tasks of a Spark stage.

``stage_main`` is the function of all these tasks, ``bounded_task`` one attempt of a task; ``commit`` is the last stage.
Records pass Spark's shuffle as ``blobs``, arrive in ``buckets`` of keys, and are combined before it (``combining``).
"""
