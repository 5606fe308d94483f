from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.programs.serve.stage import Stage

from .windows import Windows


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Run one broker for all tests here. Each test uses its own entities."""
    made = Stage(tmp_path_factory.mktemp("stage"))
    try:
        made.open_gateway()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="package")
def windows(stage: Stage) -> Windows:
    """Send the first messages before Spark starts, so that their windows pass while it starts and other tests run."""
    return Windows(stage)


@pytest.fixture(scope="package", autouse=True)
def begun(stage: Stage, windows: Windows) -> None:
    stage.start_pipeline()
    windows.send_within()
    stage.flow()


@pytest.fixture(autouse=True)
def whole(stage: Stage, begun: None) -> None:
    """Restore the broker, so that a test that failed does not make the next ones fail."""
    stage.restore()
