"""Tables of databases, through Python's drivers. The name is Flink's: there is no Java in it."""
