"""OpenTelemetry: receivers of traces, metrics and logs, and what exports to them."""
