"""Traces: spans of a job's life (restarts, checkpoints), exported by OpenTelemetry if ``traces.reporters`` is set."""
