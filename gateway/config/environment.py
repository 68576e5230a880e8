"""Owns what the environment says: the home folder, the secrets, the service manager."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from agent.errors import ConfigError
from gateway.config.models import Config
from gateway.config.secret_files import (
    about_config_file,
    open_to_others,
    read_secret_file,
    secret_file,
)

UNIT_PATH = Path("/etc/systemd/system/posthouse.service")
_INSTALLED = "the installed unit"
_TELEGRAM_TOKEN = re.compile(r"\d+:[\w-]+")
_DISCORD_TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


@dataclass(frozen=True, slots=True)
class Secrets:
    """Tokens and keys; their values never show in a repr."""

    telegram_bot_token: str | None = field(default=None, repr=False)
    discord_bot_token: str | None = field(default=None, repr=False)
    anthropic_api_key: str | None = field(default=None, repr=False)
    telegram_webhook_secret: str | None = field(default=None, repr=False)

    def by_name(self) -> dict[str, str | None]:
        """Each as its variable and its file are called."""
        return {name: getattr(self, name.lower()) for name in SECRET_NAMES}

    def values(self) -> list[str]:
        """Every value that must not appear in a log."""
        return [value for value in self.by_name().values() if value]


SECRET_NAMES = tuple(one.name.upper() for one in fields(Secrets))


@dataclass(frozen=True, slots=True)
class Home:
    """The home folder and why it is this one."""

    path: Path
    reason: str

    @property
    def is_services(self) -> bool:
        """It is that of the installed service, whoever looks at it."""
        return self.reason.startswith(_INSTALLED)

    @property
    def database(self) -> Path:
        """The session store."""
        return self.path / "state.db"

    @property
    def windows(self) -> Path:
        """What providers said of their models' windows."""
        return self.path / "windows.json"

    @property
    def image_tokens(self) -> Path:
        """What pictures were seen to cost, per model."""
        return self.path / "image_tokens.json"

    @property
    def attachments(self) -> Path:
        """The files that people sent, each under the hash of its content."""
        return self.path / "attachments"

    @property
    def workspace(self) -> Path:
        """The folders in which tools may act, one for each person or group."""
        return self.path / "workspace"

    @property
    def tools_socket(self) -> Path:
        """Where the unit for commands listens, if it is installed."""
        return self.path / "tools.sock"

    @property
    def plugins(self) -> Path:
        """The folder of the operator's plugins."""
        return self.path / "plugins"

    @property
    def hermes(self) -> Path:
        """The home that plugins see: copies, and their own files."""
        return self.path / "hermes"

    @property
    def secrets(self) -> Path:
        """Where `posthouse init` keeps tokens and keys, one file each (ADR 66)."""
        return self.path / "secrets"

    @property
    def lock(self) -> Path:
        """Held (not: existing) while a daemon runs."""
        return self.path / "posthouse.lock"


def environment() -> Mapping[str, str]:
    """The process's environment: the one place that reads it."""
    return os.environ


def find_home(env: Mapping[str, str], unit_path: Path = UNIT_PATH) -> Home:
    """``POSTHOUSE_HOME``, else ``$STATE_DIRECTORY``, else the installed unit's, else ours."""
    if env.get("POSTHOUSE_HOME"):
        return Home(Path(env["POSTHOUSE_HOME"]).expanduser().resolve(), "POSTHOUSE_HOME")
    if env.get("STATE_DIRECTORY"):
        return Home(Path(env["STATE_DIRECTORY"].split(":")[0]), "STATE_DIRECTORY")
    installed = _home_of_unit(unit_path)
    if installed is not None:
        return Home(installed, f"{_INSTALLED} {unit_path.name}")
    return Home(Path(env.get("HOME") or "~").expanduser() / ".posthouse", "the default")


def _home_of_unit(unit_path: Path) -> Path | None:
    try:
        text = unit_path.read_text(encoding="utf-8")
    except OSError:
        return None
    import configparser  # noqa: PLC0415 - only where the service is installed

    unit = configparser.RawConfigParser(strict=False, allow_no_value=True)
    try:
        unit.read_string(text)
    except configparser.Error:
        return None
    for line in unit.get("Service", "Environment", fallback="").split():
        name, _, value = line.strip('"').partition("=")
        if name == "POSTHOUSE_HOME" and value:
            return Path(value)
    state = unit.get("Service", "StateDirectory", fallback="")
    return Path("/var/lib") / state.split()[0] if state else None


def local_zone(env: Mapping[str, str], file: Path = Path("/etc/localtime")) -> tzinfo:
    """The system's time zone with its rules for summer time; UTC if there is none."""
    try:
        if env.get("TZ"):
            return ZoneInfo(env["TZ"].lstrip(":"))
        with file.open("rb") as stream:
            return ZoneInfo.from_file(stream, key="local")
    except (KeyError, ValueError, OSError):
        return UTC


def find_config_file(option: str | None, home: Home) -> Path | None:
    """The file that ``--config`` names (it has to exist), else the home's, if there is one."""
    if option is not None:
        path = Path(option).expanduser()
        if not path.is_file():
            raise ConfigError([f"{path}: there is no such file (--config)"])
        return path
    path = home.path / "config.yaml"
    # Whatever stands there was meant as one, so what is no readable file is an error, not a
    # reason to take the defaults.
    return path if os.path.lexists(path) else None


def read_secrets(env: Mapping[str, str], folder: Path | None = None) -> Secrets:
    """Each from its variable, else the file that ``<name>_FILE`` names, else a credential.

    ``folder``: the home's, where a file of that name is the last that is asked.

    Raises:
        ConfigError: a named file can not be read, or one of the folder by too many.
    """
    return Secrets(**{name.lower(): _secret(env, name, folder) for name in SECRET_NAMES})


def set_up_for_plugins(
    hermes_home: Path, declared: Collection[str], others: Collection[str] = ()
) -> None:
    """What plugins find in the environment: their home, and of our secrets those they declare.

    ``others``: secrets that the configuration names, beside those that we know ourselves.

    The secrets were read before; nothing reads them from here again. A start of the process begins
    with the environment of its service manager, so nothing is lost.
    """
    os.environ["HERMES_HOME"] = str(hermes_home)
    # Some write into a home folder of another program unless they are told where.
    os.environ.setdefault("LCM_DATABASE_PATH", str(hermes_home / "lcm.db"))
    laid_over = [n for n in os.environ if n.startswith("POSTHOUSE__")]  # secrets may be among it
    for name in (*SECRET_NAMES, *others, *laid_over):
        if name not in declared:
            os.environ.pop(name, None)
            os.environ.pop(f"{name}_FILE", None)
    os.environ.pop("CREDENTIALS_DIRECTORY", None)


def references(config: Config) -> list[str]:
    """The variables that servers of tools get as ``${NAME}``."""
    servers = [s for s in config.agent.tools.mcp.values() if s.enabled]
    return [name for server in servers for name in server.references()]


def referenced(
    config: Config, env: Mapping[str, str], folder: Path | None = None
) -> dict[str, str | None]:
    """What ``${NAME}`` stands for in the servers of tools; None: nobody has said.

    Raises:
        ConfigError: as `read_secrets`.
    """
    return {name: _secret(env, name, folder) for name in references(config)}


def values_to_hide(config: Config, env: Mapping[str, str], folder: Path | None = None) -> list[str]:
    """What must not appear in a log, of what stands in the configuration or is named there."""
    written = [v for server in config.agent.tools.mcp.values() for v in server.secrets()]
    if config.telegram.webhook.secret:
        written.append(config.telegram.webhook.secret)
    return [*written, *(value for value in referenced(config, env, folder).values() if value)]


def odd_secrets(secrets: Secrets) -> list[str]:
    """One line for each secret that nobody would take."""
    found: list[str] = []
    secret = secrets.telegram_webhook_secret
    if secret is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", secret):
        found.append("TELEGRAM_WEBHOOK_SECRET: Telegram takes A-Z, a-z, 0-9, _ and -, 256 at most")
    telegram, discord = secrets.telegram_bot_token or "", secrets.discord_bot_token or ""
    if _DISCORD_TOKEN.fullmatch(telegram) and _TELEGRAM_TOKEN.fullmatch(discord):
        found.append(
            "TELEGRAM_BOT_TOKEN and DISCORD_BOT_TOKEN are swapped: each looks like the other's"
        )
    return found


def _secret(env: Mapping[str, str], name: str, home_folder: Path | None = None) -> str | None:
    if env.get(name, "").strip():
        return env[name].strip()
    file = secret_file(env, name, home_folder)
    value = read_secret_file(file) if file is not None else None
    if value is None and file is not None and file.managed:
        # An empty credential is none: a unit has to name all that there could be.
        own = secret_file({}, name, home_folder)
        value = read_secret_file(own) if own is not None else None
    return value


def unguarded(
    config: Config, env: Mapping[str, str], file: Path | None, home: Home | None = None
) -> list[str]:
    """One line for each file of ours that others can read or write, and should not.

    ``home``: that of the gateway which reads them; None: it is this process.
    """
    names = dict.fromkeys([*SECRET_NAMES, *references(config)])
    reader = os.geteuid()
    if home is not None and home.is_services and home.path.exists():
        reader = home.path.stat().st_uid  # root looks at what the service's own user reads
    about_file = about_config_file(file, reader) if file is not None else []
    return [*open_to_others(env, names), *about_file]
