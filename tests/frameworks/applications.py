"""Applications in Java: Maven fetches their framework once, and they are compiled once."""

from __future__ import annotations

from pathlib import Path

from tests import maven
from tests.clients import java, suite

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


def command(name: str) -> list[str]:
    """Return the command that runs the application in `examples/NAME` with the libraries of `NAME/pom.xml`."""
    pom, source = HERE / name / "pom.xml", EXAMPLES / name / "Orders.java"
    libraries = maven.libraries(f"frameworks/{name}-libraries", pom.parent)
    with suite.made(f"frameworks/{name}-classes", [pom, source]) as (classes, is_made):
        if not is_made:
            suite.build(HERE, "javac", "-encoding", "UTF-8", "-cp", f"{libraries}/*", "-d", str(classes), str(source))
    return ["java", *java.QUICK, "-cp", f"{classes}:{libraries}/*", "shop.Orders"]
