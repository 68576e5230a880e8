"""What is loaded behind READY, and the garbage collector that a start runs without."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, cast

import pytest

from agent.errors import ModelConnectionError
from agent.llm.offline import OfflineModel
from gateway.wiring.warming_up import warm_up

NOBODY = cast(Any, None)
"""Nobody is asked for a window."""


class Loading(OfflineModel):
    """One that takes its time."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(window_tokens=1000)
        self.loaded = 0
        self._error = error

    async def load(self) -> None:
        assert not gc.isenabled(), "everything that is loaded would be walked"
        self.loaded += 1
        if self._error is not None:
            raise self._error


@pytest.fixture(autouse=True)
def _as_in_a_start() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize("model", [OfflineModel(window_tokens=1000), Loading()])
async def test_garbage_is_collected_once_all_is_loaded(model: OfflineModel) -> None:
    tidied = []

    async def tidy() -> int:
        tidied.append(gc.isenabled())
        return 0

    await warm_up(model, NOBODY, tidy)
    assert tidied == [True]
    assert gc.get_freeze_count() > 0


async def test_a_model_that_can_not_be_asked_stops_nothing() -> None:
    model = Loading(ModelConnectionError("the model is closed"))
    await warm_up(model, NOBODY, None)
    assert model.loaded == 1
    assert gc.isenabled()


async def test_whatever_fails_garbage_is_collected() -> None:
    with pytest.raises(ImportError):
        await warm_up(Loading(ImportError("no such SDK")), NOBODY, None)
    assert gc.isenabled()
