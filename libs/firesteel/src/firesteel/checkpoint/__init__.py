"""Checkpoints as plain data, and the storages that keep them. Nothing of the user's is unpickled here.

``metadata`` describes a checkpoint, ``subtask_state`` and ``handles`` the state in it. ``storage`` is the contract of
storages, ``filesystem``, ``memory`` and ``s3`` implement it; ``store`` remembers which checkpoints are complete.
``assign`` and ``restore_point`` decide which subtask gets which state back; ``savepoints`` belong to the user.
"""
