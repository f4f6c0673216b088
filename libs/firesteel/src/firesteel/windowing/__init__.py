"""Windows: what they are, which records go into them, when they are evaluated, and what becomes of them. All pure."""
