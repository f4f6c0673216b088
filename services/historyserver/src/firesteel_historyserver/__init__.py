"""The history server."""
