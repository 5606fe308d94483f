"""Runs `oncebus` as `python -m oncebus`."""

from oncebus.programs.cli import main

main(prog_name="oncebus")
