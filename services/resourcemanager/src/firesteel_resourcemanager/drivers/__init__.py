"""Worker drivers that come with the ResourceManager."""
