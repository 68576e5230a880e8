"""Owns the model that answers, as configured: with its fallbacks, or the offline one."""

from __future__ import annotations

import random

from agent.errors import ConfigError
from agent.llm.anthropic import AnthropicModel
from agent.llm.native_edits import edits_for
from agent.llm.offline import OfflineModel
from agent.llm.pictures import PictureLoader
from agent.llm.retry import RetryingModel
from agent.llm.standing import Standing
from agent.loop import LoopSettings
from agent.model_metadata import Triggers
from agent.ports import Clock, LanguageModel
from agent.prompt_caching import TTL_SECONDS, cache_marks, ttl_for
from gateway.config.environment import Secrets
from gateway.config.models import Config
from gateway.config.tokens import where_to_put

OFFLINE_WINDOW_TOKENS = 200_000


def check_model(config: Config, secrets: Secrets) -> None:
    """Refuse what can not work, before anything is opened.

    Raises:
        ConfigError: Anthropic is asked for without a key or a base URL.
    """
    wanted = config.model
    if wanted.provider == "anthropic" and not (secrets.anthropic_api_key or wanted.base_url):
        raise ConfigError(
            [
                "model.provider is anthropic, but there is neither ANTHROPIC_API_KEY nor a "
                f"base_url: {where_to_put('ANTHROPIC_API_KEY')}"
            ]
        )


def build_model(
    config: Config, secrets: Secrets, clock: Clock, pictures: PictureLoader | None = None
) -> LanguageModel:
    """The model with its fallbacks and the retry policy, or the offline one.

    ``pictures``: where those come from that people have sent.

    Raises:
        ConfigError: as `check_model`.
    """
    check_model(config, secrets)
    wanted = config.model
    if is_offline(config, secrets):
        return OfflineModel(window_tokens=wanted.context_length or OFFLINE_WINDOW_TOKENS)
    models = [
        AnthropicModel(
            name,
            api_key=secrets.anthropic_api_key,
            base_url=wanted.base_url,
            clock=clock,
            pictures=pictures,
        )
        for name in (wanted.name, *wanted.fallback)
    ]
    return RetryingModel(models, clock=clock, random=random.random)


def missing_native(model: LanguageModel) -> tuple[str, ...]:
    """What of native context management is not to be had here, as far as that is known."""
    if isinstance(model, RetryingModel):
        return model.missing_native
    return ("context edits", "compaction")


def ask_anew(model: LanguageModel) -> None:
    """A person has asked for it: what was left alone after a refused key is tried."""
    if isinstance(model, RetryingModel):
        model.ask_anew()


def standing(model: LanguageModel) -> Standing:
    """What its provider says of key, credit and models; nothing of a model that has none."""
    return model.standing if isinstance(model, RetryingModel) else Standing()


def is_offline(config: Config, secrets: Secrets) -> bool:
    """Does the built-in model answer?"""
    if config.model.provider == "auto":
        return not (secrets.anthropic_api_key or config.model.base_url)
    return config.model.provider == "offline"


def known_window(config: Config, model: LanguageModel) -> int | None:
    """The window as far as nobody needs to be asked; None: it is to be found out."""
    if config.model.context_length is None and isinstance(model, OfflineModel):
        return OFFLINE_WINDOW_TOKENS
    return config.model.context_length


def loop_settings(config: Config, model: str, triggers: Triggers) -> LoopSettings:
    """The limits of a turn, for the window that is known by now."""
    marks = cache_marks(model, config.model.base_url)
    return LoopSettings(
        max_iterations=config.agent.max_iterations,
        max_tokens=triggers.max_tokens,
        cache_ttl=config.model.cache_ttl if marks.on else None,
        edits=edits_for(triggers, tool_result_tokens(triggers))
        if config.compression.native == "edits"
        else None,
    )


def tool_result_tokens(triggers: Triggers) -> int:
    """How much of a tool's result is sent: several must fit between two compressions."""
    return max(200, min(4000, triggers.effective_tokens // 6))


def cache_seconds(config: Config, model: str) -> float:
    """How long the provider keeps the prompt of somebody who chats; 0: it keeps none."""
    marks = cache_marks(model, config.model.base_url)
    ttl = ttl_for(config.model.cache_ttl if marks.on else None, for_person=True)
    return TTL_SECONDS[ttl] if ttl is not None else 0.0
