"""A machine with systemd as its first process: a container over this machine's /usr.

Its root is in memory; it shares the network, so that servers of the test process are on its
loopback. posthouse lies in /opt there, as an operator would have put it, with this interpreter and
these packages. Nothing of it is left when the tests are over.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "storage", "gateway", "plugins", "systemd", "tests")
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PROGRAM = "/opt/posthouse/.venv/bin/posthouse"
BOOT_SECONDS = 40.0
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
_START = """\
#!/opt/posthouse/.venv/bin/python
import sys
from gateway.cli.main import main
sys.exit(main())
"""


class Refused(Exception):
    """There can be no such machine here; the text says why."""


_IN_GROUPS = 'for group in $CONTROL_GROUPS; do echo $$ > "$group/cgroup.procs"; done; exec "$@"'


def own_groups(name: str) -> list[Path]:
    """Control groups for this machine alone: two of them in one would end each other's services."""
    made: list[Path] = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, kind, path = line.split(":", 2)
        if kind not in ("", "name=systemd"):
            continue
        mounts = ("systemd",) if kind else ("unified", "")
        for mount in mounts:
            parent = Path("/sys/fs/cgroup") / mount / path.lstrip("/")
            if not (parent / "cgroup.procs").exists():
                continue
            with contextlib.suppress(OSError):
                (parent / name).mkdir()
                made.append(parent / name)
            break
    return made


def remove_group(group: Path) -> None:
    """It and those in it; what still holds a process stays."""
    folders = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def lay_out(folder: Path) -> None:
    """What lies in /opt/posthouse: a copy, so that nobody's edits get into a running test."""
    for name in PACKAGES:
        shutil.copytree(
            REPO / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".*_cache")
        )
    shutil.copy(REPO / "config.yaml", folder)
    packages = folder / ".venv" / "lib" / PYTHON / "site-packages"
    packages.mkdir(parents=True)
    programs = folder / ".venv" / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(f"/opt/python/bin/{PYTHON}")
    (folder / ".venv" / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
    (packages / "packages.pth").write_text('import site; site.addsitedir("/opt/packages")\n')
    (packages / "posthouse.pth").write_text("/opt/posthouse\n")
    program = programs / "posthouse"
    program.write_text(_START)
    program.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
            os.chown(path, 0, 0)


class Machine:
    """It runs from `boot` to `power_off`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._container: subprocess.Popen[bytes] | None = None
        self._leader = 0
        self._groups: list[Path] = []

    @property
    def root(self) -> Path:
        """Its file system, seen from here."""
        return Path(f"/proc/{self._leader}/root")

    def boot(self) -> None:
        """Until it is up.

        Raises:
            Refused: it does not come up, here.
        """
        if os.geteuid() != 0:
            raise Refused("only root can run a container with systemd")
        if shutil.which("systemd-nspawn") is None:
            raise Refused("systemd-nspawn is not installed (systemd-container)")
        place = self._folder / "opt"
        place.mkdir()
        lay_out(place)
        name = f"posthouse-{os.getpid()}-{secrets.token_hex(4)}"
        self._groups = own_groups(name)
        log = (self._folder / "boot.log").open("wb")
        with log:
            self._container = subprocess.Popen(
                [
                    *("sh", "-c", _IN_GROUPS, "sh"),
                    *("systemd-nspawn", "-D", "/", "--volatile=yes", "--register=no"),
                    *("--keep-unit", "--console=read-only", "--boot"),
                    f"--machine={name}",
                    f"--bind-ro={sys.base_prefix}:/opt/python",
                    f"--bind={place}:/opt/posthouse",
                    f"--bind-ro={sysconfig.get_paths()['purelib']}:/opt/packages",
                    "systemd.firstboot=no",
                ],
                env={**os.environ, "CONTROL_GROUPS": " ".join(map(str, self._groups))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + BOOT_SECONDS
        while not self._is_up():
            if self._container.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "boot.log").read_text(errors="replace")
                self.power_off()
                raise Refused(f"the container does not come up: {said[-600:]}")
            time.sleep(0.1)
        # This interpreter's library lies where it is now.
        self.run("sh", "-c", "echo /opt/python/lib > /etc/ld.so.conf && ldconfig")

    def _is_up(self) -> bool:
        assert self._container is not None
        children = Path(f"/proc/{self._container.pid}/task/{self._container.pid}/children")
        with contextlib.suppress(OSError, IndexError, subprocess.TimeoutExpired):
            self._leader = int(children.read_text().split()[0])
            done = self.run("systemctl", "is-system-running", check=False, seconds=5)
            return done.stdout.strip() in ("running", "degraded")
        return False

    @property
    def inside(self) -> tuple[str, ...]:
        """What a command is put behind, to run as root in there."""
        return ("nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p")

    def run(
        self, *command: str, check: bool = True, seconds: float = 60, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """A command, as root in there, to its end."""
        done = subprocess.run(
            [*self.inside, *command],
            env={**ENVIRONMENT, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{command} → {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def power_off(self) -> None:
        """Leave nothing of it, whatever has happened."""
        if self._container is None:
            return
        if self._container.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                if self._leader:
                    self.run("systemctl", "poweroff", "--force", check=False, seconds=10)
                else:
                    self._container.terminate()
            try:
                self._container.wait(10)
            except subprocess.TimeoutExpired:
                self._container.kill()  # its processes die with their namespace
                self._container.wait()
        self._container = None
        for group in self._groups:
            remove_group(group)
