"""JobMaster: the execution of one job."""
