"""Clusters as applications on YARN: the client's side, the ApplicationMaster, and what is said between them."""
