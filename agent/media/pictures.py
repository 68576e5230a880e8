"""Owns Pillow: pictures that people send, made fit for a model, within bounds of memory and time.

Imported in the thread that makes the first one: a daemon that sees none never loads it.
"""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agent.llm.background import in_daemon_thread
from agent.media.kinds import SHOWN_TYPES, picture_size

if TYPE_CHECKING:
    from PIL.Image import Image

LONG_SIDE_PIXELS = 1568
"""A provider scales what is longer to this: more costs bytes, and shows nothing."""
MAX_SHOWN_BYTES = 1_500_000
"""Of what is sent along with every request from then on."""
MAX_PIXELS = 24_000_000
MAX_JPEG_PIXELS = 64_000_000
"""A JPEG is made smaller while it is read, and that is what cameras write."""
DEADLINE_SECONDS = 30.0
_QUALITIES = (85, 60)
_ORIENTATION = 0x0112
_SWAPPED = (5, 6, 7, 8)
_TURNS = {  # by the orientation that a camera noted
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
_FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/gif": "GIF",
    "image/webp": "WEBP",
    "image/bmp": "BMP",
}


class PictureUnfit(Exception):
    """It can not be shown; the text says why, in words for a model."""


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """What a model gets to see."""

    data: bytes
    """The picture's own bytes (the same object) where they are fit as they are."""
    media_type: str
    original_width: int
    original_height: int
    """Upright, before it was made smaller."""


class PictureMaker:
    """Makes pictures fit, one at a time: a large one takes memory."""

    def __init__(self, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        """``deadline_seconds``: of one picture, from its turn on."""
        self._turn = asyncio.Semaphore(1)
        self._deadline_seconds = deadline_seconds

    async def fit(self, data: bytes) -> ShownPicture:
        """The picture as a model takes it; it was read to its end, so no provider will refuse it.

        Raises:
            PictureUnfit: damaged, too many pixels, or too slow.
        """
        async with self._turn:
            try:
                # A thread of its own: one that hangs is left behind, and holds nobody up.
                async with asyncio.timeout(self._deadline_seconds):
                    return await in_daemon_thread(partial(fit_picture, data), "picture")
            except TimeoutError:
                raise PictureUnfit("it took too long to read") from None


def fit_picture(data: bytes) -> ShownPicture:
    """`PictureMaker.fit`, in the thread of the caller."""
    found = picture_size(data)
    if found is None:
        raise PictureUnfit("it is damaged")
    # Before any library sees it: some set memory aside for the whole canvas when they open it.
    _require_bounds(found.media_type, found.width, found.height)
    import PIL.Image  # noqa: PLC0415 - heavy, and most days nobody sends a picture

    try:
        with PIL.Image.open(io.BytesIO(data), formats=[_FORMATS[found.media_type]]) as image:
            _require_bounds(found.media_type, *image.size)
            return _fit(image, data, found.media_type)
    except PictureUnfit:
        raise
    except Exception as exc:  # its decoders fail with whatever comes to them
        raise PictureUnfit("it is damaged") from exc


def _require_bounds(media_type: str, width: int, height: int) -> None:
    most = MAX_JPEG_PIXELS if media_type == "image/jpeg" else MAX_PIXELS
    if width < 1 or height < 1:
        raise PictureUnfit("it is damaged")
    if width * height > most:
        raise PictureUnfit(f"{width} x {height} pixels are too many")


def _fit(image: Image, data: bytes, media_type: str) -> ShownPicture:
    width, height = image.size
    if media_type == "image/jpeg":
        image.draft("RGB", (LONG_SIDE_PIXELS, LONG_SIDE_PIXELS))
    image.load()  # to the end: half a picture is damaged, whatever its head says
    orientation = _orientation(image)  # only now: asking for it loads some kinds, and once only
    if orientation in _SWAPPED:
        width, height = height, width
    small = max(width, height) <= LONG_SIDE_PIXELS and len(data) <= MAX_SHOWN_BYTES
    usual = media_type in SHOWN_TYPES and image.mode != "CMYK"
    if small and usual and orientation not in _TURNS:
        return ShownPicture(data, media_type, width, height)
    made, kind = _encoded(_upright(image, orientation), photo=media_type == "image/jpeg")
    return ShownPicture(made, kind, width, height)


def _orientation(image: Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # noqa: BLE001 - what a camera noted beside a picture does not spoil it
        return 1


def _upright(image: Image, orientation: int) -> Image:
    """Small, the right way up, in plain colours, and without what cameras note beside a picture."""
    import PIL.Image  # noqa: PLC0415 - as above

    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        image = image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    plain = image.convert("RGBA" if alpha else "RGB")
    plain.thumbnail((LONG_SIDE_PIXELS, LONG_SIDE_PIXELS))
    plain.info.clear()
    turn = _TURNS.get(orientation)
    return plain.transpose(PIL.Image.Transpose[turn]) if turn else plain


def _encoded(image: Image, *, photo: bool) -> tuple[bytes, str]:
    """Drawings stay exact where that is small enough."""
    if not photo:
        exact = _saved(image, "PNG", optimize=False)
        if len(exact) <= MAX_SHOWN_BYTES:
            return exact, "image/png"
    if image.mode == "RGBA":
        import PIL.Image  # noqa: PLC0415 - as above

        white = PIL.Image.new("RGBA", image.size, "white")
        white.alpha_composite(image)
        image = white.convert("RGB")
    for quality in _QUALITIES:
        lossy = _saved(image, "JPEG", quality=quality)
        if len(lossy) <= MAX_SHOWN_BYTES:
            break
    return lossy, "image/jpeg"


def _saved(image: Image, kind: str, **settings: int) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **settings)
    return out.getvalue()
