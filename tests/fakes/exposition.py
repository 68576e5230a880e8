"""Owns a strict reader of Prometheus's text format 0.0.4: what it does not read is not valid."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>[^ ]+)")
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_UNESCAPED = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}

Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass
class Family:
    """One metric."""

    kind: str
    samples: dict[Series, float] = field(default_factory=dict)


def read_exposition(text: str) -> dict[str, Family]:
    """Every family by name; raises AssertionError for whatever the format does not allow."""
    assert text.endswith("\n"), "the last line has to end"
    families: dict[str, Family] = {}
    helped: set[str] = set()
    current = ""
    for row in text[:-1].split("\n"):
        assert row == row.strip(" \r\t"), f"blanks around {row!r}"
        if row.startswith("# HELP "):
            name = row.split(" ", 3)[2]
            assert name not in helped, f"two HELP lines for {name}"
            helped.add(name)
        elif row.startswith("# TYPE "):
            _, _, name, kind = row.split(" ")
            assert name not in families, f"{name} is there twice"
            assert kind in ("counter", "gauge", "histogram"), kind
            families[name] = Family(kind)
            current = name
        else:
            _sample(row, current, families)
    for name, family in families.items():
        if family.kind == "histogram":
            _check_histogram(name, family)
        if family.kind == "counter":
            assert name.endswith("_total"), f"the counter {name} has no name of one"
            assert all(value >= 0 for value in family.samples.values())
    assert helped == set(families)
    return families


def _sample(row: str, current: str, families: dict[str, Family]) -> None:
    match = _SAMPLE.fullmatch(row)
    assert match, f"not a sample: {row!r}"
    family = families[current]
    names = [current + suffix for suffix in _SUFFIXES.get(family.kind, ("",))]
    assert match["name"] in names, f"{match['name']} stands under {current}"
    series = (match["name"], tuple(sorted(_labels(match["labels"] or "").items())))
    assert series not in family.samples, f"twice: {row!r}"
    family.samples[series] = float(match["value"].replace("Inf", "inf"))


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        assert match, f"not labels: {text[at:]!r}"
        assert match[1] not in found, f"the label {match[1]} is there twice"
        found[match[1]] = re.sub(r'\\[\\"n]', lambda m: _UNESCAPED[m[0]], match[2])
        at = match.end()
    return found


def _check_histogram(name: str, family: Family) -> None:
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for (sample, labels), value in family.samples.items():
        if sample == f"{name}_bucket":
            bound = float(dict(labels)["le"].replace("Inf", "inf"))
            rest = tuple(pair for pair in labels if pair[0] != "le")
            buckets.setdefault(rest, []).append((bound, value))
    for rest, series in buckets.items():
        counts = [count for _, count in sorted(series)]
        assert counts == sorted(counts), f"the buckets of {name} do not rise"
        assert max(series)[0] == float("inf")
        assert family.samples[(f"{name}_count", rest)] == counts[-1]
        assert (f"{name}_sum", rest) in family.samples
