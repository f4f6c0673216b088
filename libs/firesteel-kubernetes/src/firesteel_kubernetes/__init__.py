"""Clusters on Kubernetes: its API server, pods, the ResourceManager's provider, high availability, commands."""
