"""Clusters as applications on YARN: the client's side, the ApplicationMaster, the ResourceManager's provider."""
