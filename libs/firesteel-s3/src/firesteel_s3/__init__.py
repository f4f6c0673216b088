"""Object stores that speak S3: the client, and what the core finds it by."""
