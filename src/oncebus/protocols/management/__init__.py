"""How an entity looks from outside: its properties and their names, requested changes, and the plans to apply them.

Atom, ARM, templates, the emulator's configuration, the entities file, the command line and the portal translate to and
from the types of this package. They hold no rules of their own.
"""
