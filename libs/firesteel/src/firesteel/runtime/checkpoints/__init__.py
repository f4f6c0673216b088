"""The task's side of checkpoints.

On the way out: ``aligner`` waits for barriers, ``task_checkpoints`` begins snapshots (``snapshot``) and acknowledges
them, ``in_flight`` logs records that a barrier has overtaken, ``uploads`` writes state, ``bases`` remembers what later
checkpoints may build on. On the way back: ``restoring`` runs ``restore`` in a thread.
"""
