"""Owns the check of config.yaml: mistakes, what is most likely meant otherwise, who may talk."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.config.models import unavailable
from gateway.config.tokens import awaited_tokens, missing_tokens, where_to_put
from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground
from gateway.intake.who_may_talk import in_words, warnings_of

_FILE_HELP = "`posthouse config check` says it again once it is changed"


def look(ground: Ground) -> Iterable[Finding]:
    """The file, and what follows from it."""
    # Inside: it brings what the composition is made of.
    from gateway.wiring.platforms import build_policies, enabled_platforms  # noqa: PLC0415

    said = Said("configuration")
    for line in ground.config_problems:
        said.problem(line, f"correct that line; {_FILE_HELP}")
    if ground.config_problems:
        return said.findings
    if ground.file is None:
        said.note("no config.yaml: the defaults hold", "`posthouse init` writes one")
    else:
        said.ok(str(ground.file))
        if ground.file.stat().st_mode & 0o022:
            said.warning(
                "others on this machine can change the configuration",
                f"chmod go-w {ground.file}",
            )
    for line in ground.config_notes:
        said.note(line, "take the new name before the old one is forgotten")
    config, secrets = ground.config, ground.secrets
    for line in missing_tokens(config, secrets):
        said.problem(line, "`posthouse init` asks for it, or set `enabled: auto`")
    for line in unavailable(config):
        said.note(line)
    if config.logging.level == "DEBUG":
        said.note(
            "the log is at DEBUG: it grows fast and names everybody who writes",
            "logging.level: INFO, once you have found what you look for",
        )
    platforms = enabled_platforms(config, secrets)
    policies = build_policies(config, set(platforms))
    for name in platforms:
        said.ok(f"who may talk to {name}: {in_words(policies[name])}")
        for line in warnings_of(name, policies[name]):
            said.warning(line, "`posthouse init`, or edit config.yaml")
    # Of secrets that can not be read nobody knows which there are.
    awaited = {} if ground.secret_problems else awaited_tokens(config, secrets)
    for variable, line in awaited.items():
        said.warning(line, f"{where_to_put(variable, ground.home.secrets)}; or `posthouse init`")
    if not platforms and not awaited and not config.plugins.enabled:
        said.note("no chat platform is set up: there is only the console", "`posthouse init`")
    return said.findings
