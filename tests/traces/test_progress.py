"""How far work on files is."""

from pathlib import Path

from rltel.traces.progress import Meter


def test_bytes_add_up_over_the_files(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, size in zip(paths, (100, 0, 50), strict=True):
        path.write_bytes(bytes(size))
    told: list[tuple[str, int, int]] = []
    meter = Meter(paths, lambda path, done, total: told.append((path.name, done, total)))
    meter.begin(paths[0])(60)
    meter.begin(paths[1])
    meter.begin(paths[2], shown=Path("d"))(20)
    assert told == [("a", 0, 150), ("a", 60, 150), ("b", 100, 150), ("d", 100, 150), ("d", 120, 150)]


def test_nobody_need_listen(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    Meter([tmp_path / "a"], None).begin(tmp_path / "a")(0)
