"""What everything else is written with: durations, sizes, errors, the disk, threads, settings, logs."""
