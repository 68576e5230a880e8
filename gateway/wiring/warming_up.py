"""Owns what is loaded behind READY, so that neither the start nor the first turn waits for it."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

from agent.errors import ModelError
from agent.llm.offline import OfflineModel
from agent.ports import LanguageModel, LoadableModel
from gateway.wiring.answering import Answering


async def warm_up(
    model: LanguageModel,
    answering: Answering,
    tidy_files: Callable[[], Awaitable[int]] | None,
) -> None:
    """Load the model's SDK beside the running loop, ask the provider for the window, tidy up."""
    try:
        if isinstance(model, LoadableModel):
            await model.load()
    except ModelError:
        pass  # whoever asks it first is told
    finally:
        # All that is loaded by now stays for good. Without this every full collection walks it
        # again and holds the loop for a tenth of a second. Off since `cli.main`.
        gc.freeze()
        gc.enable()
    if not isinstance(model, OfflineModel):
        await answering.book.ask(model, answering.compactors.clear)
    if tidy_files is not None:
        await tidy_files()
