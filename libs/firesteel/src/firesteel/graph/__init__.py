"""StreamGraph, JobGraph, ExecutionGraph and key groups: pure code without a runtime."""
