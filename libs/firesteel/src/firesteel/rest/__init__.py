"""The REST API's answers about jobs, made from their archives: what Dispatcher and history server have in common."""
