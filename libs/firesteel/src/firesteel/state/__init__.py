"""State backends, keyed and operator state, and what they write into snapshots."""
