"""HDFS by Hadoop's protocol, used as an object store: the client, and what the core finds it by."""
