"""Helpers for all other packages: durations, sizes, errors, the disk, threads, settings, logs."""
