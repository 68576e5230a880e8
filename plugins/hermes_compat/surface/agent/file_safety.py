"""Owns which files a plugin should not read on behalf of a model (`agent.file_safety`).

A help for plugins that ask, no border: they run as part of the daemon.
"""

from __future__ import annotations

from pathlib import Path

from plugins.hermes_compat import host

__all__ = ["get_read_block_error", "raise_if_read_blocked"]

_EXAMPLES = {".env.example", ".env.sample", ".env.template", ".env.dist"}
_SECRET_FOLDERS = (".ssh", ".gnupg", ".aws", ".kube", ".docker", ".config/gcloud")
_SECRET_NAMES = {"auth.json", ".netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc"}
_OPEN_TO_PEOPLE = {"attachments", "workspace"}
"""Folders of our home with files that people sent, or that tools made for them."""
_SYSTEM = (Path("/proc"), Path("/sys"), Path("/dev"))


def raise_if_read_blocked(path: str | Path) -> None:
    """Return if a plugin may read the file.

    Raises:
        ValueError: it holds secrets, or belongs to the gateway; the text says so.
    """
    reason = get_read_block_error(path)
    if reason:
        raise ValueError(reason)


def get_read_block_error(path: str | Path) -> str | None:
    """Why it should not be read; None: nothing speaks against it."""
    try:
        file = Path(path).expanduser().resolve()
    except (RuntimeError, OSError, ValueError):  # an unknown user's home; a loop of links; a NUL
        return f"{str(path)[:200]!r} can not be read"
    name = file.name.lower()
    if name == ".envrc" or (name.split(".")[:2] == ["", "env"] and name not in _EXAMPLES):
        return f"{file} is a file with secrets; it is not read"
    if name in _SECRET_NAMES or any(_is_in(file, Path.home() / f) for f in _SECRET_FOLDERS):
        return f"{file} is a file with secrets; it is not read"
    if any(_is_in(file, system) for system in _SYSTEM):
        return f"{file} belongs to the system; it is not read"
    facade = host.current().home
    ours = facade.resolve().parent if facade is not None else host.hermes_home().resolve()
    if _is_in(file, ours) and file.relative_to(ours).parts[:1] not in {
        (f,) for f in _OPEN_TO_PEOPLE
    }:
        return f"{file} belongs to the gateway; it is not read"
    return None


def _is_in(file: Path, folder: Path) -> bool:
    return file == folder or folder in file.parents
