"""Runs Java with the official clients. Maven fetches them once; the scenarios are compiled once and run in one JVM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests import maven

from . import suite
from .javascript import run
from .served import Served

HERE = Path(__file__).parent / "java"
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
"""For programs that run for seconds."""

_SCENARIO = re.compile(r"@Test\s+void (\w+)\(")
_STORE_PASSWORD = "changeit"


def missing() -> str | None:
    """Return why nothing in Java can be run, or None."""
    return maven.missing("Java suite")


def scenarios() -> list[str]:
    """Return the names of all scenarios, as Class.method."""
    return [f"{path.stem}.{name}" for path in _sources() for name in _SCENARIO.findall(path.read_text())]


def libraries() -> Path:
    """Return the folder with the libraries of pom.xml."""
    return maven.libraries("java/libraries", HERE)


def classes() -> Path:
    """Return the folder with the compiled scenarios."""
    path = f"{libraries()}/*"
    with suite.made("java/classes", [HERE / "pom.xml", *_sources()]) as (folder, is_made):
        if not is_made:
            suite.build(
                HERE, "javac", "-Werror", "-encoding", "UTF-8", "-cp", path, "-d", str(folder), *map(str, _sources())
            )
    return folder


def _sources() -> list[Path]:
    return sorted(HERE.glob("src/oncebus/*.java"))


def trust_store(certificate: Path, folder: Path) -> list[str]:
    """Make a trust store with a certificate in a folder, and return the options that let Java use it."""
    store = folder / "oncebus.p12"
    words = ["keytool", "-importcert", "-noprompt", "-alias", "oncebus", "-file", str(certificate)]
    suite.build(folder, *words, "-keystore", str(store), "-storepass", _STORE_PASSWORD)
    return [f"-Djavax.net.ssl.trustStore={store}", f"-Djavax.net.ssl.trustStorePassword={_STORE_PASSWORD}"]


def program(code: str) -> str:
    """Return a program whose `main` has this body. Its imports may stand anywhere between its statements."""
    lines = code.splitlines(keepends=True)
    imports = [line for line in lines if line.startswith("import ")]
    body = [line for line in lines if not line.startswith("import ")]
    main = "public static void main(String[] args) throws Exception"
    return f"{''.join(imports)}\npublic class Sample {{ {main} {{\n{''.join(body)}}} }}\n"


def run_file(code: str, environment: dict[str, str], options: Sequence[str] = ()) -> str:
    """Compile and run a program of one file, and return its output."""
    with TemporaryDirectory() as name:
        file = Path(name) / "Sample.java"
        file.write_text(code)
        return run(Path(name), ["java", *QUICK, *options, "-cp", f"{libraries()}/*", str(file)], environment)


def results(lines: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each scenario with its failure, if any, from the lines that Main writes."""
    for line in lines:
        name, *failure = json.loads(line)
        yield name, failure[0] if failure else None


def running(
    served: Served, names: Sequence[str], entities: dict[str, list[str]], folder: Path
) -> AbstractContextManager[suite.Suite]:
    """Run scenarios for the block."""
    environment = suite.variables(served, entities) | {
        "KEY": served.root.primary_key,
        "LISTENING_KEY": served.only_listens.primary_key,
        "AMQP_PORT": str(served.port),
        "AMQPS_PORT": str(served.amqps_port),
        "HTTPS_PORT": str(served.https_port),
    }
    options = [*QUICK, *trust_store(served.certificate, folder), "-cp", f"{classes()}:{libraries()}/*"]
    return suite.running(["java", *options, "oncebus.Main", *names], environment, names, results, folder / "java.log")
