"""Owns signatures of thinking blocks and the check that a block stands behind its own prefix."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.fakes.anthropic_server.errors import ApiError, broken
from tests.fakes.anthropic_server.units import THINKING_TYPES, Chain, Json, Unit

# A signature carries the prefix it was issued behind, sealed with this key. So nothing has to be
# remembered, and a restarted server still knows the blocks of its predecessor.
_SECRET = b"posthouse fake thinking signatures"
_PREFIX, _MODEL, _NONCE, _MAC = 16, 8, 8, 16
_LENGTH = _PREFIX + _MODEL + _NONCE + _MAC


def _model_tag(model: str) -> bytes:
    return hashlib.blake2b(model.encode(), digest_size=_MODEL).digest()


def _mac(head: bytes, text: str) -> bytes:
    message = head + text.encode("utf-8", "surrogatepass")
    return hmac.new(_SECRET, message, "sha256").digest()[:_MAC]


class Signer:
    """Issues signatures that are unique, sealed and bound to model and prefix."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def sign(self, text: str, prefix: bytes, model: str) -> str:
        """A signature for `text` produced by `model` behind `prefix`."""
        head = prefix + _model_tag(model) + next(self._numbers).to_bytes(_NONCE, "big")
        return base64.b64encode(head + _mac(head, text)).decode()


@dataclass(frozen=True)
class Sealed:
    """What a signature says."""

    prefix: bytes
    model: bytes


def unseal(signature: str, text: str) -> Sealed | None:
    """The content of a genuine signature; None if the signature or the text was changed."""
    try:
        raw = base64.b64decode(signature, validate=True)
    except ValueError:
        return None
    if len(raw) != _LENGTH:
        return None
    head, mac = raw[:-_MAC], raw[-_MAC:]
    if not hmac.compare_digest(mac, _mac(head, text)):
        return None
    return Sealed(head[:_PREFIX], head[_PREFIX : _PREFIX + _MODEL])


def signature_and_text(block: Json) -> tuple[str, str]:
    """The sealed field of a block and the text it seals (redacted blocks seal nothing)."""
    if block.get("type") == "redacted_thinking":
        return str(block.get("data", "")), ""
    return str(block.get("signature", "")), str(block.get("thinking", ""))


@dataclass(frozen=True)
class Bound:
    """A request after the binding check."""

    units: list[Unit]
    chain: Chain
    digests: list[bytes]
    transformations: list[Json]


@dataclass(frozen=True)
class Compacted:
    """What a compaction block stands for, as it was issued."""

    chain: Chain
    head: bytes  # tools and system of the compaction request
    last_role: str
    block: Json
    binds: bool  # whether its model preserves thinking


@dataclass(frozen=True)
class BindingPolicy:
    """How strictly thinking blocks are bound for one request."""

    model: str
    enforce: bool
    drop: bool
    # What compaction blocks stand for, by their signatures.
    compacted: Mapping[str, Compacted] = field(default_factory=dict)


def has_sealed(units: list[Unit]) -> bool:
    """Whether any block is sent back that only this API could have made."""
    return any(u.block.get("type") in (*THINKING_TYPES, "compaction") for u in units)


def _last_assistant_turn(units: list[Unit]) -> int:
    """Index of the first unit of the newest assistant turn (or past the end)."""
    start = len(units)
    for i in range(len(units) - 1, -1, -1):
        unit = units[i]
        if unit.section == "messages" and unit.role == "assistant":
            start = i
            if unit.turn_start:
                return start
    return start


def _forged(unit: Unit, newest: bool) -> str:
    kind = unit.block["type"]
    if newest:
        return (
            f"{unit.path}: `thinking` or `redacted_thinking` blocks in the latest assistant message"
            " cannot be modified. These blocks must remain as they were in the original response."
        )
    field = "data" if kind == "redacted_thinking" else "signature"
    return f"{unit.path}: Invalid `{field}` in `{kind}` block"


def _foreign(unit: Unit) -> str:
    return (
        f"{unit.path}: this `{unit.block['type']}` block is bound to a different conversation. The"
        " `system`, `tools` and messages before it must be the ones it was created behind."
    )


def _dropped(unit: Unit, reason: str) -> Json:
    return {"type": "thinking_dropped", "path": unit.path, "reason": reason}


class _Binder:
    """One pass over the units, with the prefix so far."""

    def __init__(self, policy: BindingPolicy, newest_turn: int) -> None:
        self.policy = policy
        self.newest_turn = newest_turn
        self.chain = Chain()
        self._cached = self.chain  # what the cache sees; parts from `chain` at a compaction block
        self.kept: list[Unit] = []
        self.digests: list[bytes] = []
        self.transformations: list[Json] = []
        self._model = _model_tag(policy.model)
        self._run_broken = False
        self._lost_turn_start = False
        self._head = self.chain.digest()
        self._summarised_role = ""  # of the last summarised turn, until something follows the block

    def take(self, index: int, unit: Unit) -> None:
        if unit.block.get("type") not in THINKING_TYPES:
            self._run_broken = False
            self._keep(unit)
            return
        reason = self._reason(index, unit)
        if reason:
            self.transformations.append(_dropped(unit, reason))
            self._lost_turn_start |= unit.turn_start
        else:
            self._keep(unit)

    def _keep(self, unit: Unit) -> None:
        if self._lost_turn_start and not unit.turn_start:
            unit = Unit(unit.section, unit.role, unit.block, unit.path, turn_start=True)
        self._lost_turn_start = False
        self.kept.append(unit)
        if unit.block.get("type") == "compaction":
            self._compacted(unit)
        else:
            if self._summarised_role and self._summarised_role == unit.role:
                self.chain = Chain()  # kept turns that go on with the last summarised one
            self._summarised_role = ""
            self.chain.add(unit)
            if unit.section != "messages":
                self._head = self.chain.digest()
            if self._cached is not self.chain:
                self._cached.add(unit)
        self.digests.append(self._cached.digest())

    def _compacted(self, unit: Unit) -> None:
        """Thinking behind a compaction block stays valid: it stands for what it replaced."""
        if self._cached is self.chain:
            self._cached = self.chain.copy()
        self._cached.add(unit)
        issued = self.policy.compacted.get(str(unit.block.get("signature")))
        _check_issued(unit, issued)
        if issued is None:
            return  # a failed one stands for nothing
        if issued.binds and issued.head == self._head:
            self.chain = issued.chain.copy()
            self._summarised_role = issued.last_role
        else:
            self.chain.add(unit)

    def _reason(self, index: int, unit: Unit) -> str:
        sealed = unseal(*signature_and_text(unit.block))
        if sealed is None:
            raise broken("23", _forged(unit, index >= self.newest_turn))
        if not self.policy.enforce:
            return ""
        if sealed.model != self._model:
            return "model_binding_mismatch"
        if sealed.prefix == self.chain.digest() and not self._run_broken:
            return ""
        if not self.policy.drop:
            raise broken("binding", _foreign(unit))
        # The rest of a run of thinking blocks goes with its first removed one.
        self._run_broken = True
        return "prefix_binding_mismatch"


def _check_issued(unit: Unit, issued: Compacted | None) -> None:
    """A block comes back as it was issued."""
    block, path = unit.block, unit.path
    if block.get("content") is None and block.get("encrypted_content") is None:
        return
    if issued is None:
        code, what = "compaction_signature_invalid", "signature"
    elif any(block.get(key) != issued.block.get(key) for key in ("content", "encrypted_content")):
        code, what = "compaction_content_mismatch", "content"
    elif block.get("tool_changes") != issued.block.get("tool_changes"):
        code, what = "compaction_tool_changes_mismatch", "tool_changes"
    else:
        return
    raise ApiError(400, f"{path}: Invalid `{what}` in `compaction` block", "compaction", code=code)


def bind(units: list[Unit], policy: BindingPolicy) -> Bound:
    """Check every thinking block against the prefix in front of it."""
    binder = _Binder(policy, _last_assistant_turn(units))
    for index, unit in enumerate(units):
        binder.take(index, unit)
    return Bound(binder.kept, binder.chain, binder.digests, binder.transformations)


def seal_answer(blocks: list[Json], chain: Chain, signer: Signer, model: str) -> Iterator[Json]:
    """Sign the unsigned thinking blocks of an answer that follows `chain`."""
    behind = chain.copy()
    for block in blocks:
        sealed = block
        if block["type"] == "thinking" and not block.get("signature"):
            text = str(block.get("thinking", ""))
            sealed = {**block, "signature": signer.sign(text, behind.digest(), model)}
        elif block["type"] == "redacted_thinking" and not block.get("data"):
            sealed = {**block, "data": signer.sign("", behind.digest(), model)}
        behind.add_answer(sealed)
        yield sealed
