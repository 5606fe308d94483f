"""The one object that every protocol talks to, and its parts."""
