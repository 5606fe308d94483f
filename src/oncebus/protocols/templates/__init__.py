"""Templates: descriptions of a namespace's resources, in Azure Resource Manager's format."""
