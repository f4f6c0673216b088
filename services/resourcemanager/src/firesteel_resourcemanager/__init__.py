"""ResourceManager: TaskManager registry, slot table, the Spark driver."""
