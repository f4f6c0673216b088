"""One subtask: ``task`` is its life, ``channel_inputs`` reads its channels, ``task_time`` looks at the clock for it.

A task whose code may block runs in a thread of its own, behind the channels of ``bridge``.
"""
