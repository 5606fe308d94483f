"""Runs `oncebus` as `python -m oncebus.cli`."""

from oncebus.cli import main

main(prog_name="oncebus")
