"""ARM: the Resource Manager API that azure-mgmt-servicebus and deployments speak, over a broker."""
