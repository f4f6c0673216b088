"""``rocksdb``: keyed state on local disks, for state that is larger than memory."""
