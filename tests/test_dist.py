"""The wheel and the source distribution, built like `make dist`, work in new virtual environments.

The dependencies come from the environment of the tests, so nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
import zipfile
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from oncebus import __version__

ROOT = Path(__file__).parents[1]
NAMES = {"wheel": f"oncebus-{__version__}-py3-none-any.whl", "source": f"oncebus-{__version__}.tar.gz"}
LIMIT = 120.0


def files_of_package() -> set[str]:
    """Return the files of the package in the repository, without those that running it creates."""
    source = ROOT / "src"
    found = (path for path in (source / "oncebus").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(source).as_posix() for path in found}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with both, built from a copy: a build leaves files beside the sources."""
    return built(tmp_path_factory.mktemp("dist"))


def built(copy: Path) -> Path:
    """Build both in an empty folder, and return the folder with the result."""
    copy.mkdir(parents=True, exist_ok=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src" / "oncebus", copy / "src" / "oncebus", ignore=shutil.ignore_patterns("__pycache__"))
    words = [sys.executable, str(ROOT / "tools" / "dist.py"), str(copy)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return copy / "dist"


def test_both_contain_every_file_of_the_package(dist: Path) -> None:
    assert sorted(os.listdir(dist)) == sorted(NAMES.values())
    wanted = files_of_package()
    assert {"oncebus/py.typed", "oncebus/protocols/portal/static/portal.css"} <= wanted
    with zipfile.ZipFile(dist / NAMES["wheel"]) as wheel:
        assert {name for name in wheel.namelist() if name.startswith("oncebus/")} == wanted
    with tarfile.open(dist / NAMES["source"]) as source:
        top = f"oncebus-{__version__}/src/"
        held = {each.name.removeprefix(top) for each in source.getmembers() if each.name.startswith(top)}
    assert wanted <= held


@pytest.mark.release
def test_the_same_sources_give_the_same_bytes(dist: Path, tmp_path: Path) -> None:
    again = built(tmp_path / "elsewhere" / "deeper")
    for name in NAMES.values():
        assert (again / name).read_bytes() == (dist / name).read_bytes(), name


@pytest.mark.parametrize("kind", ["wheel", pytest.param("source", marks=pytest.mark.release)])
def test_an_installed_package_serves(dist: Path, tmp_path: Path, kind: str) -> None:
    python = installed(tmp_path / "venv", dist / NAMES[kind])
    oncebus = python.with_name("oncebus")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ONCEBUS_"))}

    def output_of(*words: str | Path) -> str:
        return subprocess.run(words, cwd=tmp_path, env=clean, capture_output=True, text=True, check=True).stdout.strip()

    place = output_of(python, "-c", "import oncebus; print(oncebus.__file__)")
    assert Path(place).is_relative_to(tmp_path / "venv")
    assert output_of(oncebus, "--version") == f"oncebus {__version__}"
    out = tmp_path / "out"
    words: list[str | Path] = [oncebus, "gateway", "--data", tmp_path / "data", "--http-port", "0", "--amqp-port", "0"]
    with out.open("w") as log:
        process = subprocess.Popen(words, cwd=tmp_path, env=clean, stdout=log, stderr=subprocess.STDOUT)
    try:
        url = address_in(out, process)
        with urlopen(f"{url}/health/live", timeout=LIMIT) as answer:
            assert answer.status == 200
        with urlopen(Request(f"{url}/", headers={"Accept": "text/html"}), timeout=LIMIT) as answer:
            page = answer.read().decode()
        style = re.search(r'href="([^"]+\.css[^"]*)"', page)
        assert style is not None, page
        with urlopen(f"{url}{style[1]}", timeout=LIMIT) as answer:
            assert answer.headers["Content-Type"].startswith("text/css")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT)
    assert process.returncode == 0, out.read_text()


def installed(folder: Path, package: Path) -> Path:
    """Return the Python of a new environment with this package, and all others from the environment of the tests."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    # A path file that another one includes does not count, so our editable installation is not visible.
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    words = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    words += ["--no-build-isolation", "--disable-pip-version-check", str(package)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return python


def address_in(out: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address of the gateway from its output."""
    deadline = time.monotonic() + LIMIT
    while (found := re.search(r"^Oncebus accepts messages: (\S+) ", out.read_text(), re.MULTILINE)) is None:
        assert process.poll() is None, out.read_text()
        assert time.monotonic() < deadline, out.read_text()
        time.sleep(0.05)
    return found[1]
