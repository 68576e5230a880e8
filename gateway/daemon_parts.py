"""Owns the list of what a daemon runs. Wiring makes it, the daemon starts and ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.ports import Clock, LanguageModel
from agent.store_ports import Store
from gateway.approvals import ApprovalDesk
from gateway.delivery.outbox import Delivery
from gateway.exchange import TakeIn
from gateway.forgetting.desk import ForgettingDesk
from gateway.intake.pairing_office import PairingOffice
from gateway.jobs.office import JobOffice
from gateway.lanes.dispatch import Dispatch
from gateway.lanes.lanes import Lanes
from gateway.lanes.recovery import Recovery
from gateway.monitoring.http import HttpFace
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.overview import Overview
from gateway.platforms.console.adapter import ConsolePlatform
from gateway.platforms.contract import Intake, Platform
from gateway.reloading import Reloads
from gateway.restarting import RestartDesk
from gateway.sdnotify import ServiceManager
from gateway.supervisor import Supervisor
from gateway.turns.ahead import AheadDesk
from gateway.turns.micro import MicroDesk


@dataclass(frozen=True, slots=True)
class Parts:
    """What the daemon runs. Wiring makes it."""

    home: Path
    store: Store
    model: LanguageModel
    intake: Intake
    console: ConsolePlatform
    """Serves those who attach through the control socket, supervised or not."""
    platforms: Sequence[Platform]
    """Every one that may still have to send, the console included."""
    supervisor: Supervisor
    lanes: Lanes
    dispatch: Dispatch
    delivery: Delivery
    recovery: Recovery
    control_path: Path
    manager: ServiceManager
    clock: Clock
    drain_seconds: Callable[[], float]
    warm_up: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Slow imports that the first turn would otherwise wait for."""
    ahead: AheadDesk | None = None
    """Compresses before it is due."""
    micro: MicroDesk | None = None
    """Condenses single exchanges behind answered turns."""
    http: HttpFace | None = None
    metrics: Metrics | None = None
    """What the HTTP endpoint shows."""
    overview: Overview | None = None
    """How all of it is, in numbers."""
    details: Callable[[], dict[str, str]] = dict
    """For ``status``: more about it, as shown text."""
    take_in: TakeIn | None = None
    """Takes conversations in from a file; None: this store can not."""
    pairing: PairingOffice | None = None
    """Lets people in, as the operator says."""
    jobs: JobOffice | None = None
    """What runs at set times, as the operator sees it."""
    reloads: Reloads | None = None
    """Reads the configuration again; None: it can not be changed while this runs."""
    restarts: RestartDesk | None = None
    """Where somebody may ask for a restart."""
    approvals: ApprovalDesk | None = None
    forgetting: ForgettingDesk | None = None
    """Where people ask to be forgotten."""
    plugin_rows: Callable[[], list[dict[str, Any]]] | None = None
    """For `posthouse plugins`; None: there are none in this process."""
    look_at_index: Callable[[], Awaitable[str | None]] | None = None
    """Somebody beside the daemon met damage of the search index; what is said of it then."""
    let_go: Sequence[tuple[str, Callable[[], Awaitable[None]]]] = ()
    """What else is told of the end, by name, while the store is still open."""
    beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    """What else runs as long as the daemon does."""
