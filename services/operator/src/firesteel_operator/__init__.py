"""The operator: clusters and jobs on Kubernetes become what their objects say."""
