"""Templates: what a namespace is to hold, written down in Azure Resource Manager's format."""
