"""Owns who takes over what of a changed configuration, for the parts that are made here.

Whatever reads `Ground.now` when it needs a value has nothing to take over: it is named, so that
the table (`gateway.config.taking_effect`) and what happens can be compared.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.config.models import Config
from gateway.config.taking_effect import GATE_KEYS
from gateway.monitoring.self_report import SelfReport
from gateway.wiring.answering import Answering, Books
from gateway.wiring.ground import Ground
from gateway.wiring.platforms import build_policies
from gateway.wiring.talking import Inward


def say_who_takes_over(
    ground: Ground,
    answering: Answering,
    books: Books,
    inward: Inward,
    report: SelfReport,
    platforms: Collection[str],
) -> None:
    """Once, at the composition. ``platforms``: ours that may talk, the console among them."""
    reloads = ground.reloads

    async def gate(config: Config) -> None:
        policies = build_policies(config, set(platforms))
        changed = {n: p for n, p in policies.items() if inward.gate.policy(n) != p}
        inward.gate.reconfigure({**policies, **ground.foreign_policies})
        report.say_who_may_talk(changed)

    async def queue(config: Config) -> None:
        inward.intake.reconfigure(queue_limit=config.gateway.queue_limit)

    async def accounts(config: Config) -> None:
        books.accounts.reconfigure(
            zone=ground.zone, usd_per_user_day=config.budget.usd_per_user_day
        )

    async def compaction(config: Config) -> None:
        answering.factory.reconfigure(config)
        answering.compactors.clear()

    reloads.on(GATE_KEYS, gate)
    reloads.on(["gateway.queue_limit"], queue)
    reloads.on(["budget", "timezone"], accounts)
    if answering.factory.keeper is None:
        # An engine of a plugin outlives the change, and its conversation with it.
        reloads.on(["compression", "model.max_tokens", "model.cache_ttl"], compaction)
    reloads.looked_at("agent.system_prompt", "agent.max_iterations")
    reloads.looked_at("gateway.busy_mode", "gateway.drain_seconds")
    if ground.around.set_up_log is not None:
        reloads.on_reading(ground.around.set_up_log)
        reloads.looked_at("logging")
