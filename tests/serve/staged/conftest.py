from __future__ import annotations

from collections.abc import Iterator

import pytest

from serve.stage import Stage

from .windows import Windows


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One broker for all tests here. Each makes entities of its own."""
    made = Stage(tmp_path_factory.mktemp("stage"))
    try:
        made.open_gateway()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="package")
def windows(stage: Stage) -> Windows:
    """Begun before Spark is started, so that they end while it starts and other things are tried."""
    return Windows(stage)


@pytest.fixture(scope="package", autouse=True)
def begun(stage: Stage, windows: Windows) -> None:
    stage.start_pipeline()
    windows.send_within()
    stage.flow()


@pytest.fixture(autouse=True)
def whole(stage: Stage, begun: None) -> None:
    """A test that failed half way must not fail the next ones."""
    stage.mend()
