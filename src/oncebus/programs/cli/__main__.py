"""Runs `oncebus` as `python -m oncebus.programs.cli`."""

from oncebus.programs.cli import main

main(prog_name="oncebus")
