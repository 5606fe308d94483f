"""The rows of files, each id once, and beside them what was dropped and why: what `oncebus dedup` does."""
