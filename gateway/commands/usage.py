"""Owns /usage: what somebody's requests took and cost; for admins, everybody's."""

from __future__ import annotations

from agent.ledger import LedgerScope
from gateway.commands.contract import Call, CommandHost
from gateway.commands.usage_text import People, UsageReport, people, usage_text


async def usage(host: CommandHost, call: Call) -> str:
    """Today, seven days, this conversation; compressions; the budget; for admins, who spent most.

    Who else talks here is nobody's business in a group, so the list of people is only shown where
    an admin is alone with the bot.
    """
    accounts, owner = host.accounts, call.record.owner
    week_start = accounts.week_start()
    conversation = await host.sessions.conversation_for_key(call.key)
    here = None
    if conversation is not None:
        here = await accounts.statement(LedgerScope(conversation_id=conversation.id))
    everybody: People | None = None
    if call.admin and call.direct:
        everybody = people(await accounts.lines(LedgerScope(since=week_start)), accounts.prices)
    return usage_text(
        UsageReport(
            today=await accounts.statement(LedgerScope(since=accounts.today().start, owner=owner)),
            week=await accounts.statement(LedgerScope(since=week_start, owner=owner)),
            here=here,
            budget=await accounts.budget_line(owner),
            everybody=everybody,
            zone=accounts.zone,
            prices_as_of=accounts.prices.as_of,
        )
    )
