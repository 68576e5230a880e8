"""Owns the check of the model: reachable, key taken, name known, and whether prompts are cached."""

from __future__ import annotations

from collections.abc import Iterable

from agent.prompt_caching import cache_marks
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.doctor.skew import say_skew
from gateway.probing.model import NoCatalogue, UnknownModel, ask_model
from gateway.probing.web import Refused, Unreachable


def look(ground: Ground) -> Iterable[Finding]:
    """Ask the provider what it knows of the model; no token is spent."""
    said = Said("model")
    wanted, key = ground.config.model, ground.secrets.anthropic_api_key
    if wanted.provider == "anthropic" and not (key or wanted.base_url):
        said.problem(
            "model.provider is anthropic, but there is neither ANTHROPIC_API_KEY nor a base_url",
            "`posthouse init` asks for the key and tries it",
        )
        return said.findings
    if wanted.provider == "offline" or not (key or wanted.base_url):
        said.note(
            "the built-in offline model answers; it is only there to try things out",
            "`posthouse init` asks for a key of Anthropic's",
        )
        return said.findings
    marks = cache_marks(wanted.name, wanted.base_url)
    if marks.on:
        said.ok(f"prompts are cached for {wanted.cache_ttl} ({marks.why})")
    else:
        said.note(f"no cache marks are set: {marks.why}")
    if ground.offline:
        return said.findings
    for name in (wanted.name, *wanted.fallback):
        if not _asked(said, wanted.base_url, key, name):
            break
    return said.findings


def _asked(said: Said, base_url: str | None, key: str | None, name: str) -> bool:
    """Is it of use to ask for another one?"""
    try:
        facts = ask_model(base_url, key, name)
    except UnknownModel as exc:
        nearest = f"; near it: {', '.join(exc.nearest)}" if exc.nearest else ""
        said.problem(f"{exc}{nearest}", "set model.name (or model.fallback) in config.yaml")
        return True
    except Refused as exc:
        said.problem(str(exc), "make a new key in the provider's console, then `posthouse init`")
        return False
    except NoCatalogue as exc:
        said.note(
            f"the server answers, but {exc}: whether it has {name} shows at the first message"
        )
        return False
    except Unreachable as exc:
        said.warning(
            f"the model's provider can not be reached: {exc}",
            "check the network and model.base_url; what fails meanwhile, /retry asks again",
        )
        return False
    window = f", its window holds {facts.window_tokens:,} tokens" if facts.window_tokens else ""
    said.ok(f"the key is taken; {name} is known{window}")
    if facts.retires:
        said.warning(f"the provider is taking {name} out of service", "choose another model.name")
    say_skew(said, facts.server_time)
    return True
