"""What TensorBoard can hold beside numbers: texts, tables (as Markdown), images, and GIFs as moving images."""

import struct
from typing import Any

from rltel.export.media import Media, Table, unsupported

_NAME = "tensorboard"
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # the segments of a JPEG that have its size
_COLORS = 3


def values_of(media: Media, made: Any) -> list[Any]:
    """The ``Summary.Value`` of it; ``made``: the official classes.

    Raises `MediaLostError` for what TensorBoard cannot show, or cannot be read.
    """
    if media.kind in ("text", "table"):
        from tensorboard.plugins.text.summary_v2 import text_pb  # an extra: only where it is used

        return list(text_pb(media.key, media.text() if media.kind == "text" else _markdown(media.table())).value)
    if media.kind in ("image", "video"):
        data = media.path().read_bytes()
        size = size_of(data)
        if size is not None and (media.kind == "image" or data.startswith(b"GIF8")):
            width, height = size
            image = made.Summary.Image(width=width, height=height, colorspace=_COLORS, encoded_image_string=data)
            return [made.Summary.Value(tag=media.key, image=image)]
    raise unsupported(_NAME, media)


def _markdown(table: Table) -> str:
    rows = [table.columns, ["---"] * len(table.columns), *table.rows]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows)


def _cell(value: Any) -> str:
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("\n", "<br>")


def size_of(data: bytes) -> tuple[int, int] | None:
    """Width and height of a PNG, a GIF or a JPEG; None for anything else."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            width, height = struct.unpack_from(">II", data, 16)
            return width, height
        if data.startswith((b"GIF87a", b"GIF89a")):
            width, height = struct.unpack_from("<HH", data, 6)
            return width, height
        return _size_of_jpeg(data) if data.startswith(b"\xff\xd8\xff") else None
    except struct.error:  # cut short
        return None


def _size_of_jpeg(data: bytes) -> tuple[int, int] | None:
    place = 2
    while place < len(data):
        mark, kind, length = struct.unpack_from(">BBH", data, place)
        if mark != 0xFF:
            return None
        if kind in _FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        place += 2 + length
    return None
