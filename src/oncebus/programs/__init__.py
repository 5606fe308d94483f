"""The commands: `oncebus` and what it starts."""
