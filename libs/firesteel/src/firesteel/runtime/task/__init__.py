"""One subtask: its loop, its input, its life, and what it reports."""
