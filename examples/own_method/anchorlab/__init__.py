"""FedAnchor, a federated method of our own."""
