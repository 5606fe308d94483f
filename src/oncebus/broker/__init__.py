"""The broker: the one object that every protocol calls, and its parts."""
