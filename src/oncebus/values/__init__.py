"""What everything else is written with: durations, sizes, errors, files, settings, logs."""
