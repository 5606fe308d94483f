"""The pages with recipes: their programs, commands and packages."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from tests import maven
from tests.clients import suite
from tests.docs.pages import blocks

HERE = Path(__file__).parent
END = "query.awaitTermination()\n"
"""The last line of every recipe. The last run of a test, which must end, has other lines there."""


@dataclass(frozen=True)
class Page:
    """A page with a program. Maven fetches its packages from `libraries/pom.xml`, and pip Spark from `spark.txt` there.

    `table` is the expression that reads the table, and `commits` the pattern of files that the table's commits add.
    """

    name: str
    libraries: str
    table: str
    commits: str

    @property
    def program(self) -> str:
        """Return the whole program, which is the first one of the page."""
        return next(block.text for block in blocks(self.name) if block.language == "python")

    @property
    def command(self) -> list[str]:
        """Return the words of the command that starts the program."""
        lines = next(block.text for block in blocks(self.name) if block.language == "sh" and "--packages" in block.text)
        return shlex.split(lines.replace("\\\n", ""))

    @property
    def packages(self) -> list[str]:
        """Return the packages that the command names."""
        return self.command[self.command.index("--packages") + 1].split(",")

    def jars(self) -> str:
        """Return the files of the packages as an argument of spark-submit."""
        folder = maven.libraries(f"recipes/{self.libraries}", HERE / self.libraries)
        return ",".join(map(str, sorted(folder.glob("*.jar"))))

    def spark(self) -> Path:
        """Return a folder with the package `pyspark`, in the version that the other packages are made for.

        Everything that it imports is installed with our own version.
        """
        wanted = HERE / self.libraries / "spark.txt"
        with suite.made(f"recipes/{self.libraries}-spark", [wanted]) as (folder, is_made):
            if not is_made:
                install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
                suite.build(folder, *install, "--requirement", str(wanted))
        return folder


_DELTA = ("delta", 'spark.read.format("delta").load("/data/orders")', "orders/_delta_log/*[0-9].json")
_ICEBERG = ("iceberg", 'spark.table("lake.shop.orders")', "warehouse/shop/orders/metadata/*.metadata.json")

KAFKA_TO_DELTA = Page("guides/recipes/kafka-to-delta.md", *_DELTA)
FILES_TO_ICEBERG = Page("guides/recipes/files-to-iceberg.md", *_ICEBERG)
SERVICE_BUS_TO_DELTA = Page("guides/recipes/service-bus-to-delta.md", *_DELTA)
SPARK_CONNECT = Page("guides/recipes/spark-connect.md", *_DELTA)
PAGES = [KAFKA_TO_DELTA, FILES_TO_ICEBERG, SERVICE_BUS_TO_DELTA, SPARK_CONNECT]
