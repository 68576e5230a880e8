"""Owns the sections of config.yaml about what makes an answer: model, compression, agent, tools."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from gateway.config.sections.mcp import McpServerMap
from gateway.config.sections.values import HostList, HttpAddress, Section, off_is_text

CacheTtl = Literal["5m", "1h", "auto"]


class Model(Section):
    """Which model answers."""

    provider: Literal["auto", "anthropic", "offline"] = "auto"
    """Who answers; auto: Anthropic if there is a key or a base_url, else the offline model."""
    name: str = Field("claude-sonnet-5-5", min_length=1)
    """The model that answers."""
    base_url: HttpAddress | None = None
    """Any server that speaks the Messages API; null: Anthropic's own."""
    max_tokens: int = Field(8192, ge=1)
    """Longest answer, in tokens."""
    context_length: int | None = Field(None, ge=1000)
    """The window in tokens; null: ask the provider."""
    cache_ttl: CacheTtl = "5m"
    """How long the provider keeps a prompt; auto: 1h for people, 5m for jobs."""
    fallback: list[str] = []
    """Further model names, tried in order when the first can not answer."""


class Context(Section):
    """Which context engine keeps conversations inside the window."""

    engine: str = Field("compressor", pattern=r"^[a-z0-9_-]+$")
    """compressor: the built-in one; lossless: keeps it all; or a plugin's name."""


class Compression(Section):
    """The built-in context engine."""

    enabled: bool = True
    """false: conversations end when the window is full."""
    threshold: float = Field(0.50, gt=0, le=1)
    """Compress when the prompt takes this share of the window."""
    max_threshold_tokens: int | None = Field(200_000, ge=1000)
    """... or this many tokens, if that is less; null: no cap."""
    small_window_floor: float | None = Field(None, gt=0, le=1)
    """Raises the threshold for windows under 512,000 tokens, e.g. 0.75."""
    model_thresholds: dict[str, Annotated[float, Field(gt=0, le=1)]] = {}
    """Thresholds by model: {"haiku": 0.4}; the longest part of a name wins."""
    target_ratio: float = Field(0.20, ge=0.10, le=0.80)
    """Share of the threshold that stays verbatim at the end."""
    protect_first_n: int = Field(3, ge=0)
    """Messages kept at the start, until the second compression."""
    protect_last_n: int = Field(20, ge=1)
    """Messages kept at the end, as long as they are not too large."""
    summary_model: str | None = None
    """The model that writes summaries; null: the one that answers."""
    in_place: bool = False
    """true: archive inside the session instead of starting a child session."""
    background: bool = True
    """Make summaries before they are due, so that nobody waits for one."""
    native: Annotated[Literal["off", "edits", "compact"], BeforeValidator(off_is_text)] = "off"
    """edits: the provider clears old tool results; compact: it writes the summaries."""
    proactive_prune_tokens: int = Field(0, ge=0)
    """Shorten old tool results from this prompt size on; 0: never."""
    micro_compact: bool = False
    """After each turn, one older exchange goes into a rolling digest."""
    micro_compact_every_n_turns: int = Field(1, ge=1)
    """Finished turns from one pass of it to the next."""
    micro_compact_defrag_threshold_tokens: int = Field(2000, ge=1)
    """A longer digest is shortened first."""


class Tools(Section):
    """Which tools the assistant has beside recall and the clock."""

    shell: bool = False
    """Run commands in a workspace folder, each once a person says yes to it."""
    files: bool = False
    """Keep files in a workspace folder: reading is free, changes are asked."""
    workspace_mb: int = Field(500, ge=1)
    """What one person's, or one group's, may hold; a command that goes beyond is ended."""
    keep_free_mb: int = Field(500, ge=0)
    """With less free on its disk nothing is written there; the database needs room as well."""
    fetch_url: bool = True
    """Read public web pages, texts, PDFs and pictures."""
    fetch_url_hosts: HostList = []
    """Private hosts that it may read all the same, e.g. wiki.lan, 10.0.0.5:8080."""
    mcp: McpServerMap = {}
    """MCP servers by name (docs/mcp.md)."""


class Agent(Section):
    """The agent loop."""

    system_prompt: str | None = None
    """null: the shipped one."""
    max_iterations: int = Field(90, ge=1)
    """Model calls per turn."""
    tools: Tools = Tools()


class SideTask(Section):
    """What counts for one kind of side task; plugins read further keys from their copy."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    """The model that is asked; null: as for compression."""
    timeout: float | None = Field(None, gt=0, le=3600)
    """Seconds."""


class Memory(Section):
    """The memory provider."""

    provider: str | None = Field(None, pattern=r"^[a-z0-9_-]+$")
    """Beside posthouse's own notes: one memory plugin, by its name."""
