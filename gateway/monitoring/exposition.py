"""Owns counters, gauges and histograms, and their text as Prometheus reads it (format 0.0.4).

Numbers live in the process only: Prometheus expects counters to begin anew at a restart. Everything
is called on the event loop, so nothing is locked.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES = 200
"""Of one metric: labels hold words of providers and plugins, who shall not fill the memory."""
OTHER = "other"
"""What the labels of a series too many are called."""
MOST_LABEL_CHARS = 120

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")

Labels = tuple[str, ...]


class Metric(Protocol):
    """Something that has lines in the exposition."""

    @property
    def name(self) -> str:
        """Its name, as it stands there."""
        ...

    def lines(self) -> Iterator[str]:
        """HELP, TYPE and samples."""
        ...


class _Labelled:
    """What a metric with labels has in common with others of its kind: names and series."""

    def __init__(self, name: str, help_: str, kind: str, labels: Sequence[str]) -> None:
        if not _NAME.fullmatch(name) or not all(_LABEL.fullmatch(label) for label in labels):
            raise ValueError(f"{name!r} with labels {labels!r} is no name of a metric")
        self.name = name
        self._labels = tuple(labels)
        self._head = (
            f"# HELP {name} {_escaped_help(help_)}",
            f"# TYPE {name} {kind}",
        )

    def key(self, values: Sequence[str], known: Mapping[Labels, object]) -> Labels:
        """The series that these label values mean."""
        if len(values) != len(self._labels):
            raise ValueError(f"{self.name} has the labels {self._labels!r}")
        key = tuple(value[:MOST_LABEL_CHARS] for value in values)
        if key in known or len(known) < MOST_SERIES:
            return key
        return tuple(OTHER for _ in key)

    def head(self) -> tuple[str, str]:
        """HELP and TYPE."""
        return self._head

    def sample(
        self,
        labels: Labels,
        value: float,
        *,
        suffix: str = "",
        more: Mapping[str, str] | None = None,
    ) -> str:
        """One line."""
        named = {**dict(zip(self._labels, labels, strict=True)), **(more or {})}
        inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in named.items())
        return (
            f"{self.name}{suffix}{{{inside}}} {number(value)}"
            if named
            else (f"{self.name}{suffix} {number(value)}")
        )


class Counter:
    """Only ever rises."""

    def __init__(self, name: str, help_: str, labels: Sequence[str] = ()) -> None:
        self._base = _Labelled(name, help_, "counter", labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    @property
    def name(self) -> str:
        return self._base.name

    def add(self, *labels: str, by: float = 1.0) -> None:
        """Count up; a negative amount is a bug of the caller's, and is left out."""
        key = self._base.key(labels, self._values)
        self._values[key] = self._values.get(key, 0.0) + max(0.0, by)

    def value(self, *labels: str) -> float:
        """What it stands at."""
        return self._values.get(labels, 0.0)

    def lines(self) -> Iterator[str]:
        yield from self._base.head()
        for key, value in self._values.items():
            yield self._base.sample(key, value)


class Gauge:
    """Asked when it is read: what something is at this moment."""

    def __init__(
        self,
        name: str,
        help_: str,
        read: Callable[[], float | Mapping[Any, float] | None],
        labels: Sequence[str] = (),
        *,
        kind: str = "gauge",
    ) -> None:
        """Take what to ask.

        Args:
            name: Its name.
            help_: What it is.
            read: One number (None: not known now), or one for each set of label values.
            labels: Their names.
            kind: ``counter``, where somebody else does the counting.
        """
        self._base = _Labelled(name, help_, kind, labels)
        self._read = read

    @property
    def name(self) -> str:
        return self._base.name

    def lines(self) -> Iterator[str]:
        yield from self._base.head()
        found = self._read()
        if isinstance(found, Mapping):
            for key, value in list(found.items())[:MOST_SERIES]:
                yield self._base.sample(key, value)
        elif found is not None:
            yield self._base.sample((), found)


class Histogram:
    """How often something was how large."""

    def __init__(
        self, name: str, help_: str, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        """``bounds``: upper ends of the buckets, rising; the last one, without end, is added."""
        if list(bounds) != sorted(set(bounds)) or "le" in labels:
            raise ValueError(f"{name}: bounds have to rise, and no label may be called le")
        self._base = _Labelled(name, help_, "histogram", labels)
        self._bounds = tuple(bounds)
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not labels:
            self._series(())

    @property
    def name(self) -> str:
        return self._base.name

    def observe(self, value: float, *labels: str) -> None:
        """Take in one measurement."""
        key = self._base.key(labels, self._counts)
        self._series(key)[bisect.bisect_left(self._bounds, value)] += 1
        self._sums[key] += value

    def _series(self, key: Labels) -> list[int]:
        self._sums.setdefault(key, 0.0)
        return self._counts.setdefault(key, [0] * (len(self._bounds) + 1))

    def lines(self) -> Iterator[str]:
        yield from self._base.head()
        for key, counts in self._counts.items():
            total = 0
            for bound, count in zip((*self._bounds, math.inf), counts, strict=True):
                total += count
                le = {"le": number(bound)}
                yield self._base.sample(key, total, suffix="_bucket", more=le)
            yield self._base.sample(key, self._sums[key], suffix="_sum")
            yield self._base.sample(key, total, suffix="_count")


def exposition(metrics: Iterable[Metric]) -> str:
    """All of them as one text."""
    return "\n".join(line for metric in metrics for line in metric.lines()) + "\n"


def number(value: float) -> str:
    """As the format writes numbers."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _escaped(text: str) -> str:
    """A label's value; half surrogates have no UTF-8."""
    text = text.encode("utf-8", "replace").decode()
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _escaped_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
