"""Owns what is asked about the model: the key, tried at once, and which model answers."""

from __future__ import annotations

from gateway.doctor.ground import Ground
from gateway.doctor.kept_secrets import source_of
from gateway.probing.model import NoCatalogue, UnknownModel, ask_model
from gateway.probing.web import Refused, Unreachable
from gateway.setup.talk import Talk
from gateway.setup.wishes import ANTHROPIC_KEY, Wishes


def ask_about_model(talk: Talk, ground: Ground, base_url: str | None, *, offline: bool) -> Wishes:
    """The key, and the model's name."""
    talk.say(
        "\n3. The model\n"
        "   A key of Anthropic's (https://platform.claude.com, API keys). Without one the offline\n"
        "   model answers that is built in; it is only there to try things out."
    )
    there = ground.secrets.anthropic_api_key
    where, file = source_of(ground, ANTHROPIC_KEY)
    name = ground.config.model.name
    settings: dict[str, str] = {}
    while True:
        hint = f"Enter: the one from {where}" if there else "Enter: no key"
        typed = talk.secret(f"   Key; {hint}")
        key = typed or there
        if not key and base_url is None:
            return Wishes({}, settings)
        secrets = {ANTHROPIC_KEY: key} if key and (typed or file is None) else {}
        name, settled = _name(talk, base_url, key, name, offline=offline)
        settings = {"model.name": name}
        if settled:
            return Wishes(secrets, settings)
        there = None


def _name(
    talk: Talk, base_url: str | None, key: str | None, name: str, *, offline: bool
) -> tuple[str, bool]:
    """The model that answers, and whether that is all; else another key is needed first."""
    while True:
        chosen = talk.ask("   Model", name)
        if offline:
            return chosen, True
        try:
            facts = ask_model(base_url, key, chosen)
        except UnknownModel as exc:
            nearest = f" Near it: {', '.join(exc.nearest)}." if exc.nearest else ""
            talk.say(f"   There is no model of that name.{nearest}")
            continue
        except NoCatalogue:
            talk.say("   The server answers, but does not say which models it has.")
            return chosen, True
        except Refused:
            return chosen, _kept_all_the_same(talk, key)
        except Unreachable as exc:
            talk.say(f"   The provider can not be reached: {exc}.")
            if talk.sure("   Keep key and model untried?", default=False):
                return chosen, True
            continue
        if facts.window_tokens:
            talk.say(f"   Known; its window holds {facts.window_tokens:,} tokens.")
        if facts.retires:
            talk.say("   The provider is taking it out of service; a newer one would last longer.")
            if not talk.sure("   Take it anyway?", default=False):
                continue
        return chosen, True


def _kept_all_the_same(talk: Talk, key: str | None) -> bool:
    """The way on, without which all that was typed is lost: a key may be good only later."""
    if not key:
        talk.say("   The provider wants a key.")
        return talk.sure("   Go on without one?", default=False)
    talk.say("   The provider does not take this key. Copy it whole, or make a new one.")
    return talk.sure("   Keep it all the same?", default=False)
