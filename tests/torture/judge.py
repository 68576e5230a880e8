"""Owns the verdict: what became of each fact, by the chats, the store and the model's requests."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.texts import GOES_ON, STOPPED_HERE
from tests.acceptance.harness import World
from tests.acceptance.places import Place
from tests.acceptance.talk import with_marks
from tests.fakes.anthropic_server.units import blocks_of
from tests.fakes.store_invariants import check_invariants
from tests.torture.facts import TAG, Fact, Telling, people_say, tools_say

OVER = "it is over"
"""Why a question was not sent: nobody waits for its answer any more."""


class Judge:
    """Looks at a run that is over."""

    def __init__(self, world: World, telling: Telling, places: dict[str, Place]) -> None:
        self._world = world
        self._telling = telling
        self._places = places
        self._database = world.database()
        self.fates: Counter[str] = Counter()
        self.repeats = 0

    def open_facts(self) -> list[str]:
        """What is neither answered nor over in another way that the queue knows."""
        shown = {name: "\n".join(whole(place)) for name, place in self._places.items()}
        missing = [f for f in self._telling.facts.values() if f.last_line not in shown[f.place]]
        if not missing:
            return []
        given_up = self._given_up()
        return [fact.tag for fact in missing if fact.tag not in given_up]

    def faults(self) -> list[str]:
        """Everything that is wrong, in words."""
        return [
            *self._of_the_platforms(),
            *self._of_the_store(),
            *(fault for fact in self._telling.facts.values() for fault in self._of_a_fact(fact)),
            *self._of_the_order(),
            *self._of_the_requests(),
        ]

    def unsettled(self) -> dict[str, dict[str, int]]:
        """What the store still has to do; turns that gave way are over."""
        found = self._database.unsettled()
        found.get("turns", {}).pop("stopped", None)
        for table, settled in (
            ("outbox", self._withdrawn),
            ("outbox_parts", self._withdrawn_parts),
        ):
            if found.get(table, {}).get("failed") == settled():
                found[table].pop("failed")
        return {table: states for table, states in found.items() if states}

    def _withdrawn(self) -> int:
        """Questions that were over before they could be sent."""
        query = "SELECT count(*) FROM outbox WHERE state = 'failed' AND error = ?"
        return int(self._database.one(query, OVER))

    def _withdrawn_parts(self) -> int:
        query = "SELECT count(*) FROM outbox_parts WHERE state = 'failed' AND error = ?"
        return int(self._database.one(query, OVER))

    # --- one by one

    def _of_a_fact(self, fact: Fact) -> Iterator[str]:
        marked = with_marks(whole(self._places[fact.place]))
        first = sum(text.count(fact.last_line) for text, repeat in marked if not repeat)
        again = sum(text.count(fact.last_line) for text, repeat in marked if repeat)
        self.repeats += again
        platform = self._places[fact.place].platform
        given_up = fact.tag in self._given_up()
        if first + again == 0 and given_up:
            self.fates["given way"] += 1
        elif first + again == 0:
            self.fates["lost"] += 1
            yield f"{fact.tag} ({fact.happening} in {fact.place}) is not answered"
        else:
            self.fates["answered"] += 1
        if first == 2 and given_up:
            # Killed before the number of its preview was stored, and gave way before it said
            # anything again: that message stays as it is (ADR 40), and the next turn answers.
            self.fates["a preview left behind"] += 1
        elif first > 1 or (again and platform == "discord"):
            yield f"{fact.tag} ({fact.happening} in {fact.place}): {first} answers, {again} marked"
        owed = self._database.one(
            "SELECT count(*) FROM outbox WHERE kind = 'reply' AND instr(text, ?)", fact.last_line
        )
        if owed > 1:
            yield f"{fact.tag} ({fact.happening} in {fact.place}): {owed} answers are stored"
        yield from self._of_its_words(fact)
        if first + again:  # what gave way may have been condensed before any model saw it
            yield from self._of_its_files(fact)
        if fact.wish == "shell":
            yield from self._of_its_deed(fact)

    def _of_its_words(self, fact: Fact) -> Iterator[str]:
        """Stored exactly once as a person's, whatever pieces they came in."""
        said = _squeezed(self._said_in_store(fact))
        counts = [said.count(_squeezed(version)) for version in fact.versions]
        # A later version has all of the earlier one in it.
        if counts[0] != 1:
            yield f"{fact.tag} ({fact.happening} in {fact.place}): its words are stored {counts}"

    def _said_in_store(self, fact: Fact) -> str:
        """All that people said in the conversations that know this fact."""
        rows = self._originals()
        mine = {row["conversation_id"] for row in rows if f"fact {fact.tag}:" in _words(row)}
        return "\n".join(_words(row) for row in rows if row["conversation_id"] in mine)

    def _of_its_files(self, fact: Fact) -> Iterator[str]:
        """Seen by the model, and no picture twice in one request."""
        for picture in fact.pictures:
            data = base64.b64encode(picture).decode()
            counts = [seen.count(data) for seen in self._pictures_of_requests()]
            if max(counts, default=0) != 1:
                yield f"{fact.tag} ({fact.happening}): a picture is in requests {set(counts)} times"
        if fact.inside and not self._was_read(fact.inside):
            yield f"{fact.tag}: what its document says was never read"

    def _was_read(self, words: str) -> bool:
        return any(words in text for r in self._requests() for text in tools_say(r.messages))

    def _of_its_deed(self, fact: Fact) -> Iterator[str]:
        """Done at most once, and never without a yes."""
        files = list(Path(self._world.home / "workspace").glob(f"*/{fact.tag}.ran"))
        times = sum(len(file.read_text().splitlines()) for file in files)
        self.fates[f"deeds {'done' if times else 'left'} after {fact.pressed or 'no answer'}"] += 1
        if times > (fact.pressed == "yes"):
            yield f"{fact.tag}: done {times} times after {fact.pressed or 'no answer'!r}"

    # --- altogether

    def _of_the_order(self) -> Iterator[str]:
        """Answers come in the order in which the facts were told."""
        for name, place in self._places.items():
            shown = "\n".join(text for text, repeat in with_marks(whole(place)) if not repeat)
            tags = [f.tag for f in self._telling.facts.values() if f.place == name]
            at = {tag: shown.find(f"{tag} is done.") for tag in tags}
            told = [tag for tag in tags if at[tag] >= 0]
            if told != sorted(told, key=at.__getitem__):
                yield f"{name}: answered in the order {sorted(told, key=at.__getitem__)}"

    def _of_the_requests(self) -> Iterator[str]:
        """No request says anything of a person twice; all of it was said in one at least."""
        seen: set[str] = set()
        for record in self._requests():
            tags = Counter(tag for text in people_say(record.messages) for tag in TAG.findall(text))
            seen.update(tags)
            twice = [tag for tag, count in tags.items() if count > 1]
            if twice:
                yield f"request {record.number} says {twice} more than once"
        never = set(self._telling.facts) - seen - self._given_up()
        if never:
            yield f"never asked: {sorted(never)}"

    def _of_the_store(self) -> Iterator[str]:
        if unsettled := self.unsettled():
            yield f"unsettled: {unsettled}"
        if self._database.states("inbox").get("quarantined"):
            yield "something could not be read"
        check_invariants(self._database.path)

    def _of_the_platforms(self) -> Iterator[str]:
        anthropic, telegram, discord = (
            self._world.anthropic, self._world.telegram, self._world.discord,
        )  # fmt: skip
        for record in anthropic.rejected:
            yield f"the model's wire: {record.rule} {record.message}"
        if anthropic.stats()["crashed"]:
            yield "the fake of the model crashed"
        for call in telegram.calls:
            if call.status is None or call.status in (200, 409):
                continue
            said = call.description or ""
            if call.method == "setMyCommands" and "chat not found" in said:
                continue  # an admin's own menu, before that admin has written
            if call.method == "editMessageText" and "is not modified" in said:
                continue  # the final edit of somebody who was killed behind it, made once more
            if "upgraded to a supergroup" in said:
                continue  # that is how one hears of it
            yield f"Telegram refused {call.method}: {call.status} {said}"
        for refused in discord.calls:
            if refused.status == 404 and refused.path.startswith(("/interactions/", "/webhooks/")):
                continue  # whoever was killed in between has three seconds no more
            if refused.status >= 400:
                yield f"Discord refused {refused.method} {refused.path}: {refused.status}"

    # --- what is looked at

    def _given_up(self) -> set[str]:
        """Facts whose rows are answered by turns that gave way to a newer message."""
        rows = self._database.rows(
            "SELECT i.text FROM inbox i JOIN turns t ON t.id = i.turn_id"
            " WHERE i.state = 'answered' AND t.state = 'stopped'"
        )
        return {tag for row in rows for tag in TAG.findall(row["text"])}

    def _originals(self) -> list[dict[str, Any]]:
        return self._database.rows(
            "SELECT m.content, m.content_is_json, s.conversation_id FROM messages m JOIN sessions s"
            " ON s.id = m.session_id WHERE m.role = 'user' AND m.origin_id IS NULL"
            " AND m.kind IS NULL ORDER BY m.id"
        )

    def _requests(self) -> list[Any]:
        return [r for r in self._world.anthropic.main_requests if r.verdict == "ok"]

    def _pictures_of_requests(self) -> list[list[str]]:
        return [
            [
                block["source"]["data"]
                for message in record.messages
                for block in blocks_of(message["content"])
                if block["type"] == "image"
            ]
            for record in self._requests()
        ]


def whole(place: Place) -> list[str]:
    """What a place shows, without answers that were cut off and say so."""
    return [t for t in place.shown() if STOPPED_HERE not in t and GOES_ON not in t]


def _words(row: Any) -> str:
    """The text of a row's content, which is a text or a list of parts."""
    if not row["content_is_json"]:
        return str(row["content"])
    parts = json.loads(row["content"])
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def _squeezed(text: str) -> str:
    return "".join(text.split())
