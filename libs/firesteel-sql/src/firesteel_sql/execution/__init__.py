"""From relations to streams, and to the results of statements."""
