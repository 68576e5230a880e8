"""Owns the shape of config.yaml: every key, its type, its range and its default."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from gateway.config.mcp import McpServerMap

CacheTtl = Literal["5m", "1h", "auto"]


_DELIVERED_TO = (443, 80, 88, 8443)
"""The ports of webhooks that Telegram's own servers deliver to."""
_ID = re.compile(r"-?[1-9][0-9]{0,19}", re.ASCII)
"""One way to write each number, so that equal ids are equal texts."""


def plain_id(text: str) -> str | None:
    """A numeric id in the one form that counts; None: it is none."""
    text = text.strip()
    return text if _ID.fullmatch(text) else None


def _ids(value: Any) -> Any:
    """Numeric ids as text; nothing, an empty text and null entries mean nobody."""
    if value is None or value == "":
        return []
    if not isinstance(value, list):
        raise ValueError('must be a list of numeric ids, for example [123456789], or ["*"]')
    ids: list[str] = []
    wrong: list[str] = []
    for item in value:
        if item is None or item == "":
            continue
        text = str(item).strip()
        found = text if text == "*" else plain_id(text)
        if isinstance(item, bool) or found is None:
            wrong.append(repr(item))
        else:
            ids.append(found)
    if wrong:
        what = f"{wrong[0]} is no numeric id" if len(wrong) == 1 else f"{_listed(wrong)} are no ids"
        raise ValueError(
            f"{what} such as 123456789 or -1001234567890 (names change hands, ids do not)"
        )
    return ids


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _no_wildcard(value: list[str]) -> list[str]:
    if "*" in value:
        raise ValueError('"*" is only possible in allow_from')
    return value


def _off_is_text(value: Any) -> Any:
    """YAML reads a bare ``off`` as false."""
    return "off" if value is False else value


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _switch(value: Any) -> Any:
    if value != "auto" and not isinstance(value, bool):
        raise ValueError("must be auto, true or false")
    return value


def _bare(value: str) -> str:
    if "?" in value or "#" in value:
        raise ValueError("must be a plain address, without ? and #: a path is put behind it")
    return value


def _address(*schemes: str) -> AfterValidator:
    def check(value: str) -> str:
        try:
            parts = urlsplit(value)
            sound = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            sound = False
        if not sound or not value.isprintable() or " " in value:
            raise ValueError(f"must be a whole address, such as {schemes[0]}://example.org")
        return value

    return AfterValidator(check)


HttpAddress = Annotated[str, _address("https", "http")]
SocketAddress = Annotated[str, _address("wss", "ws")]
Switch = Annotated[Literal["auto"] | bool, BeforeValidator(_switch)]
Ids = Annotated[list[str], BeforeValidator(_ids)]
PlainIds = Annotated[list[str], BeforeValidator(lambda v: _no_wildcard(_ids(v)))]


class Section(BaseModel):
    """Base of all sections: an unknown key or a wrong type is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_section(cls, data: Any) -> Any:
        """`section:` with nothing below it means its defaults."""
        return {} if data is None else data


class Model(Section):
    """Which model answers."""

    provider: Literal["auto", "anthropic", "offline"] = "auto"
    name: str = Field("claude-sonnet-5-5", min_length=1)
    base_url: HttpAddress | None = None
    max_tokens: int = Field(8192, ge=1)
    context_length: int | None = Field(None, ge=1000)
    cache_ttl: CacheTtl = "5m"
    fallback: list[str] = []


class Context(Section):
    """Which context engine keeps conversations inside the window."""

    engine: str = Field("compressor", pattern=r"^[a-z0-9_-]+$")


class Compression(Section):
    """The built-in context engine."""

    enabled: bool = True
    threshold: float = Field(0.50, gt=0, le=1)
    max_threshold_tokens: int | None = Field(200_000, ge=1000)
    small_window_floor: float | None = Field(None, gt=0, le=1)
    model_thresholds: dict[str, Annotated[float, Field(gt=0, le=1)]] = {}
    target_ratio: float = Field(0.20, ge=0.10, le=0.80)
    protect_first_n: int = Field(3, ge=0)
    protect_last_n: int = Field(20, ge=1)
    summary_model: str | None = None
    in_place: bool = False
    background: bool = True
    native: Annotated[Literal["off", "edits", "compact"], BeforeValidator(_off_is_text)] = "off"
    proactive_prune_tokens: int = Field(0, ge=0)
    micro_compact: bool = False
    micro_compact_every_n_turns: int = Field(1, ge=1)
    micro_compact_defrag_threshold_tokens: int = Field(2000, ge=1)


class Tools(Section):
    """Which tools the assistant has beside recall and the clock."""

    shell: bool = False
    files: bool = False
    fetch_url: bool = True
    mcp: McpServerMap = {}


class Agent(Section):
    """The agent loop."""

    system_prompt: str | None = None
    max_iterations: int = Field(90, ge=1)
    tools: Tools = Tools()


class Http(Section):
    """The local HTTP endpoint."""

    host: str = Field("127.0.0.1", min_length=1)
    port: int | None = Field(8787, ge=0, le=65535)
    allowed_hosts: list[str] = []


class Gateway(Section):
    """The daemon."""

    busy_mode: Literal["queue", "interrupt", "steer"] = "queue"
    drain_seconds: float = Field(20, ge=0, le=600)
    queue_limit: int = Field(200, ge=1)
    streaming: bool = True
    control_socket: str | None = None
    http: Http = Http()


class TelegramWebhook(Section):
    """Webhook mode of Telegram."""

    url: Annotated[HttpAddress, AfterValidator(_bare)] | None = None
    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(8443, ge=0, le=65535)
    secret: str | None = Field(None, pattern=r"^[A-Za-z0-9_-]{1,256}$")


class WhoMayCommand(Section):
    """Who may give the commands of plugins: in direct chats, and (``group_…``) in groups."""

    allow_admin_from: PlainIds = []
    user_allowed_commands: list[str] = []
    group_allow_admin_from: PlainIds = []
    group_user_allowed_commands: list[str] = []


class Telegram(WhoMayCommand):
    """The Telegram bot."""

    enabled: Switch = "auto"
    base_url: HttpAddress = "https://api.telegram.org/bot"
    base_file_url: HttpAddress = "https://api.telegram.org/file/bot"
    mode: Literal["polling", "webhook"] = "polling"
    webhook: TelegramWebhook = TelegramWebhook()
    allow_from: Ids = []
    allow_chats: PlainIds = []
    admins: PlainIds = []
    pairing: bool = False
    group_sessions_per_user: bool = True
    require_mention: bool = True

    @model_validator(mode="after")
    def _reachable(self) -> Telegram:
        url, example = self.webhook.url, "https://bot.example.org/telegram"
        if self.mode == "webhook" and url is None:
            raise ValueError(
                f"mode is webhook, so webhook.url must say where Telegram reaches it: {example}"
            )
        official = self.base_url == Telegram.model_fields["base_url"].default
        if url is not None and official and not url.lower().startswith("https:"):
            raise ValueError(f"webhook.url must begin with https, as in {example}")
        if url is not None and official and (urlsplit(url).port or 443) not in _DELIVERED_TO:
            raise ValueError("webhook.url: Telegram delivers to port 443, 80, 88 and 8443 only")
        return self


class Discord(WhoMayCommand):
    """The Discord bot."""

    enabled: Switch = "auto"
    api_base: HttpAddress = "https://discord.com/api/v10"
    gateway_url: SocketAddress | None = None
    allow_from: Ids = []
    allow_channels: PlainIds = []
    allow_roles: PlainIds = []
    admins: PlainIds = []
    pairing: bool = False
    group_sessions_per_user: bool = True
    require_mention: bool = True


class Console(Section):
    """Chat on standard input and output."""

    enabled: Switch = "auto"


class Sessions(Section):
    """When a conversation starts anew by itself, and how long old ones are kept."""

    reset: Literal["none", "idle", "daily"] = "none"
    idle_minutes: int = Field(1440, ge=1)
    daily_hour: int = Field(4, ge=0, le=23)
    retention_days: int | None = Field(None, ge=1)


class SideTask(Section):
    """What counts for one kind of side task."""

    model_config = ConfigDict(extra="allow")
    """Plugins read further keys from their copy."""

    model: str | None = None
    timeout: float | None = Field(None, gt=0, le=3600)
    """Seconds."""


class Memory(Section):
    """The memory provider."""

    provider: str | None = Field(None, pattern=r"^[a-z0-9_-]+$")


class Plugins(Section):
    """Which plugins are loaded, and what is handed to them."""

    enabled: list[str] = []
    disabled: list[str] = []
    entries: dict[str, Any] = {}


class Budget(Section):
    """What may be spent."""

    usd_per_user_day: float | None = Field(None, gt=0)


class Logging(Section):
    """The log on standard error."""

    level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(_upper)] = "INFO"
    format: Literal["auto", "plain", "json"] = "auto"


class Config(Section):
    """config.yaml."""

    model: Model = Model()
    context: Context = Context()
    compression: Compression = Compression()
    agent: Agent = Agent()
    gateway: Gateway = Gateway()
    telegram: Telegram = Telegram()
    discord: Discord = Discord()
    timezone: str | None = None
    console: Console = Console()
    sessions: Sessions = Sessions()
    auxiliary: dict[str, SideTask] = {}
    memory: Memory = Memory()
    plugins: Plugins = Plugins()
    jobs: list[Any] = []
    budget: Budget = Budget()
    logging: Logging = Logging()

    @property
    def wants_plugins(self) -> bool:
        """Is there code of others to load?"""
        return bool(
            self.plugins.enabled or self.memory.provider or self.context.engine != "compressor"
        )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                ZoneInfo(value)
            except (KeyError, ValueError, OSError) as exc:
                raise ValueError(
                    f"{value!r} is no time zone name, for example Europe/Berlin"
                ) from exc
        return value

    @model_validator(mode="before")
    @classmethod
    def _aliases(cls, data: Any) -> Any:
        """`prompt_caching.cache_ttl` and `auxiliary.compression.model` name the same as ours."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        caching = data.pop("prompt_caching", None)
        if isinstance(caching, dict) and set(caching) <= {"cache_ttl"}:
            data["model"] = {**caching, **(data.get("model") or {})}
        elif caching is not None:
            data["prompt_caching"] = caching
        side = data.get("auxiliary")
        name = side.get("compression", {}) if isinstance(side, dict) else {}
        if isinstance(name, dict) and name.get("model"):
            data["compression"] = {
                "summary_model": name["model"],
                **(data.get("compression") or {}),
            }
        return data


NOT_YET: dict[str, str] = {
    "sessions.reset": "session resets",
    "sessions.retention_days": "retention",
    "jobs": "jobs",
}
"""Keys that are accepted already and whose feature comes with a later release. Setting one is
said aloud at start-up instead of being ignored in silence (an empty text: not worth a line)."""


def unavailable(config: Config) -> list[str]:
    """One line for each key that asks for something that is not built yet."""
    default = Config()
    lines: list[str] = []
    for path, feature in NOT_YET.items():
        asked, usual = _at(config, path), _at(default, path)
        if feature and asked != usual:
            lines.append(f"{path} is set, but this version does not have {feature} yet")
    for name, task in config.auxiliary.items():
        elsewhere = [key for key in ("base_url", "api_key") if (task.model_extra or {}).get(key)]
        if elsewhere:
            lines.append(
                f"auxiliary.{name}: {', '.join(elsewhere)} without effect: side tasks go where "
                "`model` says"
            )
    return lines


def _at(config: Config, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value
