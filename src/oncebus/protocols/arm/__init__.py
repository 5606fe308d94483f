"""ARM: the Resource Manager API of azure-mgmt-servicebus and of deployments, served by a broker."""
