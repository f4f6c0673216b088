"""Formats of records that need packages of their own: Avro, Protobuf, and what a schema registry describes."""
