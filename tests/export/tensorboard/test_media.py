"""Texts, tables and images, as TensorBoard's own readers have them."""

import base64
import struct
import zlib
from pathlib import Path

import pytest

from export.making import TIME_NS, wait_until
from realparts.tensorboard_reader import accumulated, pages
from rltel.export.media import Kind, MediaLostError, media
from rltel.export.tensorboard.media import size_of
from rltel.export.tensorboard.sink import TensorBoardSink

GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
JPEG = bytes.fromhex("ffd8ffe000044a46ffc0000b080003000501011100ffd9")


def png(width: int, height: int) -> bytes:
    """All black."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(1 + width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def show(folder: Path, kind: Kind, payload: object) -> None:
    sink = TensorBoardSink(folder, "step")
    try:
        sink.write_media(media(kind, "shown", payload, step=4, axis="train", time_ns=TIME_NS))
    finally:
        sink.close()


def text(folder: Path) -> str:
    (found,) = accumulated(folder).Tensors("shown")
    assert (found.step, found.wall_time) == (4, TIME_NS / 1e9)
    return str(found.tensor_proto.string_val[0].decode())


def test_a_text_is_one(tmp_path: Path) -> None:
    show(tmp_path, "text", "a *sample*")
    assert text(tmp_path) == "a *sample*"
    with pages(tmp_path) as shown:
        wait_until(lambda: "shown" in shown.tensors("text").get(".", {}), "the text")


def test_a_table_is_markdown(tmp_path: Path) -> None:
    show(tmp_path, "table", {"prompt": ["a|b", "c\nd"], "reward": [1, 0.5]})
    assert text(tmp_path) == "| prompt | reward |\n| --- | --- |\n| a\\|b | 1 |\n| c<br>d | 0.5 |"


@pytest.mark.parametrize(("kind", "data", "size"), [("image", png(2, 3), (2, 3)), ("video", GIF, (1, 1))])
def test_images_and_gifs_are_images(tmp_path: Path, kind: Kind, data: bytes, size: tuple[int, int]) -> None:
    (tmp_path / "file").write_bytes(data)
    show(tmp_path / "tb", kind, tmp_path / "file")
    (found,) = accumulated(tmp_path / "tb").Images("shown")
    assert (found.encoded_image_string, (found.width, found.height)) == (data, size)


@pytest.mark.parametrize("kind", ["video", "file", "image"])
def test_what_it_cannot_show_is_said(tmp_path: Path, kind: Kind) -> None:
    (tmp_path / "play.mp4").write_bytes(b"\x00\x00\x00\x18ftypmp42")
    with pytest.raises(MediaLostError, match=rf"shown: tensorboard cannot hold a {kind} \(\.mp4\)"):
        show(tmp_path / "tb", kind, tmp_path / "play.mp4")


def test_a_file_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(MediaLostError, match="cannot read"):
        show(tmp_path / "tb", "image", tmp_path / "gone.png")


@pytest.mark.parametrize(
    ("data", "size"), [(png(7, 9), (7, 9)), (GIF, (1, 1)), (JPEG, (5, 3)), (b"", None), (b"BM", None)]
)
def test_sizes(data: bytes, size: tuple[int, int] | None) -> None:
    assert size_of(data) == size


@pytest.mark.parametrize("data", [png(7, 9), GIF, JPEG])
def test_sizes_of_what_was_cut_raise_nothing(data: bytes) -> None:
    for length in range(len(data)):
        size_of(data[:length])
