"""The az command line, unmodified, against a broker: `make test-az`. It is too large for the other suites."""
