"""Reads the configuration file of the official Service Bus emulator."""
