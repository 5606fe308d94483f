"""What the official emulator's users bring along: its configuration file."""
