"""Claims the names that it reads from standard input, at once: `python racing.py LOCATION OWN-CONTENT`."""

from __future__ import annotations

import sys
import time

from oncebus.ledger.storage import storage_at


def main() -> None:
    storage, content = storage_at(sys.argv[1]), sys.argv[2].encode()
    storage.publish_new(f"warm-{sys.argv[2]}", [content])
    print("ready", flush=True)
    for line in sys.stdin:
        name, moment = line.split()
        while time.time() < float(moment):
            pass
        print(storage.publish_new(name, [content]), flush=True)


if __name__ == "__main__":
    main()
