"""High availability on Apache ZooKeeper."""
