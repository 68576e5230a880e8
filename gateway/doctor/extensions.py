"""Owns the check of plugins and of servers of tools: found, loadable, their programs there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gateway.doctor.finding import Finding, Said
from gateway.doctor.ground import Ground


def look(ground: Ground) -> Iterable[Finding]:
    """What can be said without running any of their code."""
    said = Said("plugins")
    config = ground.config
    if not (config.wants_plugins or config.agent.tools.mcp):
        return said.findings
    # Inside: most homes have none.
    from gateway.wiring.mcp import plan_servers  # noqa: PLC0415
    from gateway.wiring.plugins import said_before_loading  # noqa: PLC0415
    from gateway.wiring.surroundings import Surroundings  # noqa: PLC0415

    around = Surroundings(ground.home, ground.secrets, ground.env, plugin_sections=ground.sections)
    troubles: list[str] = []
    if config.wants_plugins:
        troubles += asyncio.run(said_before_loading(config, around))
    if config.agent.tools.mcp:
        plan = plan_servers(config, around)
        troubles += [*plan.problems, *plan.missing_programs]
    for line in troubles:
        said.warning(line, "`posthouse plugins list` and docs/plugins.md, docs/mcp.md")
    if not troubles:
        said.ok("what is configured is there")
    return said.findings
