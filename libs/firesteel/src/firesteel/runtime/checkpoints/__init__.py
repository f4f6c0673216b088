"""The task's side of checkpoints: barriers, alignment, snapshots of operators, and what is restored."""
