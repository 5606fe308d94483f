"""Builds the wheel and the source distribution so that the same sources give the same bytes.

    python tools/dist.py [SOURCE [OUT]]

The time in both is SOURCE_DATE_EPOCH, else that of the newest commit, else 1980. The wheel is reproducible by
itself; the source distribution is packed again, because tar keeps the times, users and order of files, and gzip the
time of the build.
"""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

EARLIEST = 315_532_800
"""1 January 1980: a wheel is a zip file, which knows no earlier time."""


def build(source: Path, out: Path) -> list[Path]:
    """Build both from the sources in `source` into `out`, and return the files."""
    epoch = source_date(source)
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    # The mode of files would be that of the builder's umask.
    os.umask(0o022)
    subprocess.run(words, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}, stdout=subprocess.DEVNULL)
    for archive in out.glob("*.tar.gz"):
        repack(archive, epoch)
    return sorted(out.iterdir())


def source_date(source: Path) -> int:
    """Return the time for everything that is built."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        words = ["git", "-C", str(source), "log", "-1", "--format=%ct"]
        given = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return max(int(given or 0), EARLIEST)


def repack(archive: Path, epoch: int) -> None:
    """Write a tar.gz again: files in the order of their names, owned by nobody in particular, all of one time."""
    packed = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            content = old.extractfile(member) if member.isfile() else None
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, content)
    with archive.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as compressed:
        compressed.write(packed.getvalue())


if __name__ == "__main__":
    given = [Path(word) for word in sys.argv[1:]] or [Path.cwd()]
    for made in build(given[0], given[1] if len(given) > 1 else given[0] / "dist"):
        print(made)
