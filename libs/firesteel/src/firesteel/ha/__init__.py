"""What has to outlive the processes of a cluster: who leads, jobs, completed checkpoints, results, blobs."""
