"""Checkpoints of a job: when they are taken, what they consist of, and how a job goes on from one."""
