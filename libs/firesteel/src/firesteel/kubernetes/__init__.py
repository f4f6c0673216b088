"""Kubernetes' API server: where it is, who asks it, and questions to it."""
