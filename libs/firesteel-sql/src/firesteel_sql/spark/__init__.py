"""Batch queries as queries of Spark SQL: what has an equal there, with the results of Flink."""
