"""The inputs of source tasks: readers, splits, enumerators, and event time inside a source."""
