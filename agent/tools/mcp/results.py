"""Owns what a model gets to read and see of a call's result."""

from __future__ import annotations

from agent.attachments import Attachments, picture_part
from agent.errors import StoreUnavailable
from agent.media.kinds import CONVERTED_TYPES, SHOWN_TYPES
from agent.media.pictures import PictureMaker, PictureUnfit
from agent.messages import Part, clean_text
from agent.ports import ToolResult
from agent.tools.mcp.nouns import Answer, DataPiece, TextPiece

MAX_TEXT_CHARS = 400_000
"""Of what is kept; the registry caps what is sent, and `recall` reads the rest."""
MAX_FILES = 8
MAX_PICTURES = 4


class Teller:
    """Makes results of answers; bytes become kept files of the person whose turn it is."""

    def __init__(self, attachments: Attachments, pictures: PictureMaker) -> None:
        self._attachments = attachments
        self._pictures = pictures

    async def tell(self, answer: Answer, owner: str, *, remark: str = "") -> ToolResult:
        """The result, ``remark`` behind it."""
        lines: list[str] = []
        shown: list[Part] = []
        files = 0
        for piece in answer.pieces:
            match piece:
                case TextPiece(text):
                    lines.append(clean_text(text))
                case DataPiece() if files >= MAX_FILES:
                    lines.append("[another file, left out]")
                case DataPiece():
                    files += 1
                    line, part = await self._file(piece, owner, room=len(shown) < MAX_PICTURES)
                    lines.append(line)
                    shown += [part] if part is not None else []
        text = "\n".join(lines)
        if len(text) > MAX_TEXT_CHARS:
            missing = len(text) - MAX_TEXT_CHARS
            text = f"{text[:MAX_TEXT_CHARS]}\n[{missing:,} more characters are left out]"
        text = f"{text}\n[{remark}]" if remark else text
        return ToolResult(text, answer.is_error, tuple(shown))

    async def _file(self, piece: DataPiece, owner: str, *, room: bool) -> tuple[str, Part | None]:
        what = piece.media_type.split(";")[0].strip().lower()
        data, kind = piece.data, what or "application/octet-stream"
        picture = what in SHOWN_TYPES + CONVERTED_TYPES
        if picture:
            try:
                fit = await self._pictures.fit(data)
            except PictureUnfit as exc:
                return f"[a picture that can not be shown: {exc}]", None
            data, kind = fit.data, fit.media_type
        try:
            kept = await self._attachments.keep(
                data, owner=owner, file_name=piece.name, media_type=kind
            )
        except StoreUnavailable:
            return "[a file that can not be kept right now]", None
        if picture and room:
            return f"[a picture: attachment {kept.name}]", picture_part(kept.name, kept.size_bytes)
        return f"[a file ({kind}, {len(data):,} bytes): attachment {kept.name}]", None
