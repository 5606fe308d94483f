"""The application behind `oncebus dedup`: it copies the rows of files without duplicates, and lists the duplicates."""
