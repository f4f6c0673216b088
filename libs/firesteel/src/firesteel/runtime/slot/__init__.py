"""A slot process from its start to its release: what runs in it, and how it speaks with its TaskManager."""
