"""The forms in which tables stand in messages and files: ``format`` of a connector."""
