"""Spark as the fleet: finding Java, the driver, starting and ending slots."""
