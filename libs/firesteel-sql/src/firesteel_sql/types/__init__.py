"""SQL's types: how they are written, what comes of two of them, what can become what, and their columns in streams."""
