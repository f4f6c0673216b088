"""Traces: spans of what a job went through, exported by OpenTelemetry where ``traces.reporters`` says so."""
