"""Keys, tokens, rights."""
