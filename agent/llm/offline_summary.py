"""Owns the offline model's summaries: sections filled with what the transcript really says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agent.model_metadata import estimate_tokens_rough

_FRAME = re.compile(r"<(summary_so_far|conversation)>\n(.*?)\n</\1>", re.DOTALL)
_BLOCK = re.compile(r"^\[(USER|ASSISTANT|SYSTEM|TOOL RESULT[^\]\n]*)\]$", re.MULTILINE)
_BUDGET = re.compile(r"at most about (\d+) tokens")
_SECTION = re.compile(r"^(#{2,3}) (.+)$", re.MULTILINE)
_PATH = re.compile(r"(?<![\w/.])(?:~|\.{1,2})?/(?:[\w.@%+-]+/)*[\w.@%+-]{2,}")
_LINE_CHARS = 160
_DEFAULT_BUDGET_TOKENS = 600

GOAL = "Goal"
DONE = "Done"
OPEN = "Open User Requests"
FILES = "Relevant Files"
CONTEXT = "Critical Context"
_ORDER = (
    ("##", GOAL),
    ("##", "Constraints & Preferences"),
    ("##", "Progress"),
    ("###", DONE),
    ("###", "In progress at that time"),
    ("###", "Blocked"),
    ("##", "Key Decisions"),
    ("##", "Resolved Questions"),
    ("##", OPEN),
    ("##", FILES),
    ("##", "Remaining Work (at that time)"),
    ("##", CONTEXT),
)


@dataclass(slots=True)
class _Sections:
    lines: dict[str, list[str]] = field(default_factory=dict)

    def add(self, title: str, line: str) -> None:
        kept = self.lines.setdefault(title, [])
        if line not in kept:
            kept.append(line)

    def render(self) -> str:
        out: list[str] = []
        for mark, title in _ORDER:
            inside = title == "Progress" and any(self.lines.get(t) for _, t in _ORDER[3:6])
            if self.lines.get(title) or inside:
                out.append(f"{mark} {title}")
                out.extend(f"- {line}" for line in self.lines.get(title, ()))
        return "\n".join(out)

    def shorten(self) -> bool:
        """Let the oldest line of the longest section go; False: there is nothing to spare."""
        longest = max(self.lines, key=lambda t: len(self.lines[t]), default=None)
        if longest is None or len(self.lines[longest]) <= 1:
            return False
        # The first goal and the first line of each list stay: that is where it all began.
        del self.lines[longest][1 if len(self.lines[longest]) > 2 else 0]
        return True


def summarise(prompt: str, max_tokens: int) -> str:
    """A structured summary of the transcript in a summary call's prompt."""
    frames = {m[1]: m[2] for m in _FRAME.finditer(prompt)}
    stated = _BUDGET.search(prompt)
    budget = min(max_tokens, int(stated[1]) if stated else _DEFAULT_BUDGET_TOKENS)
    sections = _previous(frames.get("summary_so_far", ""))
    _take(sections, frames.get("conversation", prompt))
    if not sections.lines:
        sections.add(CONTEXT, "Nothing was said that could be condensed.")
    while estimate_tokens_rough(sections.render()) > budget and sections.shorten():
        pass
    return sections.render()


def _previous(text: str) -> _Sections:
    """The summary so far, to be updated; its open requests are decided anew."""
    sections = _Sections()
    titles = {title for _, title in _ORDER}
    heads = [m for m in _SECTION.finditer(text) if m[2].strip() in titles]
    for n, head in enumerate(heads):
        title = head[2].strip()
        end = heads[n + 1].start() if n + 1 < len(heads) else len(text)
        for line in text[head.end() : end].splitlines():
            if line.strip():
                sections.add(CONTEXT if title == OPEN else title, line.strip().removeprefix("- "))
    return sections


def _take(sections: _Sections, transcript: str) -> None:
    asked: list[str] = []
    for kind, body in _blocks(transcript):
        if not body:
            continue
        if kind == "USER":
            if not sections.lines.get(GOAL):
                sections.add(GOAL, f"The user began with: “{_line(body)}”")
            else:
                sections.add(CONTEXT, f"The user said: “{_line(body)}”")
            asked.append(body)
        elif kind == "ASSISTANT":
            sections.add(DONE, f"The assistant: {_line(body)}")
            if "-> calls " not in body:
                asked.clear()
        elif kind.startswith("TOOL"):
            sections.add(DONE, f"A tool returned: {_line(body)}")
        for path in _PATH.findall(body)[:5]:
            sections.add(FILES, path)
    for request in asked:
        sections.add(OPEN, f"“{_line(request)}”")


def _blocks(transcript: str) -> list[tuple[str, str]]:
    heads = list(_BLOCK.finditer(transcript))
    if not heads:
        return [("USER", transcript.strip())]
    ends = [h.start() for h in heads[1:]] + [len(transcript)]
    return [
        (head[1], transcript[head.end() : end].strip())
        for head, end in zip(heads, ends, strict=True)
    ]


def _line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _LINE_CHARS else f"{flat[: _LINE_CHARS - 1]}…"
