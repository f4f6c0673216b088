"""Keyed state in arrays: keys of columns become slot numbers, and values stand in arrays under these numbers."""
