"""The root of what Oncebus raises on purpose."""


class OncebusError(Exception):
    """Something the caller can mend. The message is one line: it names the thing and the value, and says what to do."""
