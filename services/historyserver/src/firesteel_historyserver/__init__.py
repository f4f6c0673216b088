"""The history server: shows jobs that have ended from their archives."""
