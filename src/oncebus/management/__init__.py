"""What an entity looks like from outside: its properties and their names, what was asked for, and planning changes.

Atom, ARM, templates, the emulator's configuration, the entities file, the command line and the portal read into this
package and write from it. They hold no rules of their own.
"""
