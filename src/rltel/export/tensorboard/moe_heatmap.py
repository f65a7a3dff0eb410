"""Experts' loads for TensorBoard: an image of layers by experts, instead of thousands of scalars.

Row: a layer, in the order of their ids, the first on top. Column: an expert. Colour: its load over the layer's mean
load, from blue (none) over white (1: balanced) to red (2 and more); grey where a layer has no such expert, or nothing
was routed.
"""

import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rltel.export.tracking.expert_loads import Places, split

_SIDE = 1024  # pixels, about, of the longer side
_LARGEST_CELL = 16
_STEPS = 127  # of colour, from none to balanced, and from there to twice that
_GREY = 255
_COLORS = 3


def split_off(values: Mapping[str, float], made: Any) -> tuple[dict[str, float], dict[str, Any]]:
    """The numbers without those of single experts, and images of these: ``Summary.Value`` by tag.

    ``made``: the official classes.
    """
    numbers, loads = split(values)
    return numbers, {tag: _image(tag, places, made) for tag, places in loads.items()}


def _image(tag: str, places: Places, made: Any) -> Any:
    pixels = _pixels(places)
    height, width = pixels.shape
    image = made.Summary.Image(height=height, width=width, colorspace=_COLORS, encoded_image_string=_png(pixels))
    return made.Summary.Value(tag=tag, image=image)


def _pixels(places: Places) -> npt.NDArray[np.uint8]:
    """Numbers of colours."""
    rows = {layer: row for row, layer in enumerate(sorted({layer for layer, _ in places}))}
    loads = np.full((len(rows), max(expert for _, expert in places) + 1), np.nan)
    for (layer, expert), cells in places.items():
        loads[rows[layer], expert] = cells.get("tokens", cells.get("load_percent", np.nan))
    known = ~np.isnan(loads)
    total = np.where(known, loads, 0).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = loads * known.sum(axis=1, keepdims=True) / total
    colors = np.where(np.isfinite(relative), np.rint(np.clip(relative, 0, 2) * _STEPS), _GREY)
    cell = max(1, min(_LARGEST_CELL, _SIDE // max(colors.shape)))
    return colors.astype(np.uint8).repeat(cell, axis=0).repeat(cell, axis=1)


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A PNG of numbered colours: small, and no imaging package is needed."""
    height, width = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    lines = np.zeros((height, width + 1), np.uint8)  # each line begins with the filter that it has: none
    lines[:, 1:] = pixels
    parts = ((b"IHDR", head), (b"PLTE", _PALETTE), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _palette() -> bytes:
    ends = np.array([[33, 102, 172], [255, 255, 255], [178, 24, 43]], float)
    along = np.arange(2 * _STEPS + 1) / _STEPS
    colors = np.stack([np.interp(along, (0, 1, 2), ends[:, channel]) for channel in range(_COLORS)], axis=1)
    grey = np.full((1, _COLORS), 128)
    return np.concatenate([np.rint(colors), grey]).astype(np.uint8).tobytes()


_PALETTE = _palette()
