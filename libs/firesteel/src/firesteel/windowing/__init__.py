"""Windows: their assigners, triggers, evictors and contents, and the cores that run them. All pure."""
