"""The contract of operators and what they are built from: base classes, contexts, timers, event time, failures.

Start with ``base``, then ``keyed_base`` (keys and their state) and ``timed`` (timers). The operators themselves are in
``runtime/operators``.
"""
