"""Operators that run as one: stages, what moves batches through them, and what user code may ask there."""
