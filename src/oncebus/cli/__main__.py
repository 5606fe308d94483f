"""`python -m oncebus.cli` is `oncebus`."""

from oncebus.cli import main

main(prog_name="oncebus")
