"""Dispatcher: REST API, job graphs, blobs, one JobMaster for each job."""
