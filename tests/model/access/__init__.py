"""Tests of keys, tokens and rights."""
