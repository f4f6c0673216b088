"""OpenTelemetry: receivers of traces, metrics and logs, and exporters to them."""
