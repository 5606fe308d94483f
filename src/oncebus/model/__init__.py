"""What a namespace is: its entities, their rules and who may use them. Plain values, without state."""
