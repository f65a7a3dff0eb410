"""Many processes' clocks as one: where on the wall clock each file's times lie, and how well that is known.

Processes of one host read the same monotonic clock. Hosts are tied to each other by measured offsets where there are
any, and by their wall clocks where there are none. One anchor places all that is tied together, so that a wall clock
that steps changes neither a duration nor an order.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from rltel.core.clock import Anchor
from rltel.core.errors import TraceError
from rltel.traces.drift import ClockMap, Pair
from rltel.traces.skim import BOOTTIME, MONOTONIC, REALTIME, Skimmed

SAME_BOOT_NS = 1_000_000_000
Convert = Callable[[int], int]


@dataclass
class Placement:
    """How the times of one file become wall-clock times."""

    clocks: dict[int, int]
    """What to add to a time on one of the file's clocks, by the clock's number, to have it on the file's base clock."""
    convert: Convert
    """From the base clock (monotonic where the file has it) to the wall clock."""
    constant: int | None
    """What `convert` adds, if it always adds the same."""
    default_clock: int = BOOTTIME
    """The clock of events that name none, as Perfetto has it."""


@dataclass
class Host:
    """What reads one monotonic clock. ``anchor`` is the first of all its files."""

    key: str
    files: list[Skimmed] = field(default_factory=list)
    anchor: Anchor | None = None
    to_frame: list[ClockMap] = field(default_factory=list)
    """One after the other, from this clock to that of the host which all times of the frame are converted to."""
    frame: str = ""

    @property
    def is_named(self) -> bool:
        """Whether its files name it, so that it is certain which of them are of one host."""
        return bool(self.files[0].host)


class Alignment:
    """All files on one clock.

    Raises `TraceError` for a file with events and without an anchor, or one that is merged already.
    """

    def __init__(self, files: Iterable[Skimmed]) -> None:
        self._files = [file for file in files if file.has_packets]  # one killed at its start leaves an empty file
        for file in self._files:
            _check(file)
        self.hosts = _hosts(self._files)
        _tie(self.hosts)
        self._frames = {host.frame: self._frame_offset(host.frame) for host in self.hosts.values()}

    def of(self, file: Skimmed) -> Placement:
        """Where the times of a file lie."""
        anchor = file.first_anchor
        if anchor is None:  # another producer's, without the monotonic clock
            wall = file.snapshot[REALTIME]
            return Placement({clock: wall - time for clock, time in file.snapshot.items()}, lambda time: time, 0)
        clocks = {clock: file.snapshot[MONOTONIC] - time for clock, time in file.snapshot.items()}
        clocks.setdefault(MONOTONIC, 0)
        clocks.setdefault(BOOTTIME, anchor.monotonic_ns - anchor.boottime_ns)
        host = self.hosts[host_key(file)]
        offset = self._frames[host.frame]
        maps = host.to_frame
        return Placement(clocks, lambda time: _through(maps, time) + offset, None if maps else offset)

    def of_wall(self, file: Skimmed, host: Host | None) -> Placement:
        """For a file whose times were taken from the wall clock of a host: by the host's anchor before each of them.

        Of a host that is not known, the wall clock is taken for true.
        """
        clocks = {REALTIME: 0, **{clock: file.snapshot[REALTIME] - time for clock, time in file.snapshot.items()}}
        default = REALTIME if file.is_merged else BOOTTIME
        anchors = sorted(_anchors(host), key=_wall) if host else []
        if host is None or not anchors:
            return Placement(clocks, lambda wall: wall, 0, default)
        offset, maps = self._frames[host.frame], host.to_frame
        walls = [anchor.realtime_ns for anchor in anchors]

        def convert(wall: int) -> int:
            anchor = anchors[max(bisect_right(walls, wall) - 1, 0)]
            return _through(maps, wall - anchor.realtime_ns + anchor.monotonic_ns) + offset

        return Placement(clocks, convert, None, default)

    def host_of(self, pids: Collection[int]) -> Host | None:
        """The only host, or that of the only process which has one of these pids, else None."""
        if len(self.hosts) == 1:
            return next(iter(self.hosts.values()))
        owners = {(file.process, host_key(file)) for file in self._files if file.pid in pids}
        return self.hosts[owners.pop()[1]] if len(owners) == 1 else None

    def uncertainty_ns(self, last_ns: dict[str, int]) -> int | None:
        """How far two events may be from their true distance; None if the hosts' offsets were not all measured.

        ``last_ns``: for each host (by `host_key`) the last monotonic time that was drawn.
        """
        if _machines(self.hosts.values()) <= 1:
            return 0
        if len({host.frame for host in self.hosts.values()}) > 1:
            return None
        return _worst(self.hosts.values(), last_ns)

    def uncertainty(self, last_ns: dict[str, int]) -> str:
        """The same in words."""
        machines = _machines(self.hosts.values())
        if machines <= 1:
            return "one host: all processes read the same clock"
        sizes = Counter(host.frame for host in self.hosts.values())
        frame, measured = sizes.most_common(1)[0]
        if measured == 1:
            return f"{machines} hosts: as good as their clocks agree (NTP); offsets between them were not measured"
        bound = spell_ns(_worst([host for host in self.hosts.values() if host.frame == frame], last_ns))
        if measured == len(self.hosts):
            return f"{machines} hosts: offsets between them were measured; times of different hosts are within {bound}"
        return (
            f"{machines} hosts: between {measured} of them offsets were measured (within {bound}); "
            "the others are as good as their clocks agree (NTP)"
        )

    def _frame_offset(self, frame: str) -> int:
        """From the frame's clock to the wall clock: by its own host's anchor, else by that of one tied to it."""
        members = [host for host in self.hosts.values() if host.frame == frame]
        host = self.hosts.get(frame) or min(members, key=lambda host: len(host.to_frame))
        if host.anchor is None:
            return 0  # its files have only the wall clock
        return host.anchor.realtime_ns - _through(host.to_frame, host.anchor.monotonic_ns)


def host_key(file: Skimmed) -> str:
    """What tells the hosts of files apart. Without a host id, each process counts for itself."""
    if file.host:
        return f"host {file.host}"
    return f"process {file.process}" if file.process else f"file {file.path}"


def spell_ns(time_ns: float) -> str:
    """A time in a unit that suits it."""
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(time_ns) >= unit:
            return f"{time_ns / unit:.3g} {name}"
    return f"{time_ns:.0f} ns"


def _check(file: Skimmed) -> None:
    if file.is_merged:
        raise TraceError(f"{file.path}: is a merged trace already; merge the files that it was made of")
    if not file.anchors and REALTIME not in file.snapshot:
        raise TraceError(
            f"{file.path}: has no clock anchor (ClockSnapshot with the wall clock), so it cannot be placed in time"
        )


def _hosts(files: Iterable[Skimmed]) -> dict[str, Host]:
    hosts: dict[str, Host] = {}
    for file in files:
        host = hosts.setdefault(host_key(file), Host(host_key(file)))
        host.files.append(file)
        anchor = file.first_anchor
        if anchor and (host.anchor is None or anchor.monotonic_ns < host.anchor.monotonic_ns):
            host.anchor = anchor
    return hosts


def _anchors(host: Host) -> list[Anchor]:
    return [anchor for file in host.files for anchor in file.joint_readings]


def _wall(anchor: Anchor) -> int:
    return anchor.realtime_ns


def _tie(hosts: dict[str, Host]) -> None:
    """Find what is tied together by measurements: a frame, on the clock of the host most measured against."""
    by_process = {file.process: key for key, host in hosts.items() for file in host.files if file.process}
    pairs: dict[tuple[str, str], list[Pair]] = {}
    chosen: Counter[str] = Counter()
    for key, host in hosts.items():
        for each in (measured for file in host.files for measured in file.measured):
            there = by_process.get(each.reference, f"process {each.reference}")  # maybe one that left no file
            chosen[there] += 1
            if there != key:
                pair = Pair(each.time_ns, each.time_ns - each.offset_ns, each.error_ns)
                pairs.setdefault((key, there), []).append(pair)
                pairs.setdefault((there, key), []).append(pair.turned())
    reached: dict[str, list[ClockMap]] = {}
    for root in [key for key, _ in chosen.most_common()] + list(hosts):
        if root not in reached:
            _spread(root, pairs, reached, hosts)


def _spread(
    root: str,
    pairs: dict[tuple[str, str], list[Pair]],
    reached: dict[str, list[ClockMap]],
    hosts: dict[str, Host],
) -> None:
    reached[root] = []
    waiting = [root]
    while waiting:
        there = waiting.pop(0)
        if there in hosts:
            hosts[there].to_frame, hosts[there].frame = reached[there], root
        for (key, other), measured in pairs.items():
            if other == there and key not in reached:
                reached[key] = [ClockMap(measured), *reached[there]]
                waiting.append(key)


def _through(maps: Sequence[ClockMap], time: int) -> int:
    for each in maps:
        time = each.at(time)
    return time


def _machines(hosts: Iterable[Host]) -> int:
    """How many hosts there are: those with an id, and of the others those that booted at different times."""
    count, boots = 0, list[int]()
    for host in sorted(hosts, key=lambda host: not host.is_named):
        boot = _boot(host.files[0])
        is_known = any(abs(boot - known) <= SAME_BOOT_NS for known in boots)
        count += host.is_named or not is_known
        if not is_known:
            boots.append(boot)
    return count


def _boot(file: Skimmed) -> int:
    """When the host booted (ns): processes of one host agree on it, but for what the wall clock was set by."""
    anchor = file.first_anchor
    if anchor is not None:
        return anchor.realtime_ns - anchor.boottime_ns
    return file.snapshot[REALTIME] - file.snapshot.get(BOOTTIME, file.snapshot[REALTIME])


def _worst(hosts: Iterable[Host], last_ns: dict[str, int]) -> int:
    """The largest error between two hosts: the sum of the two largest against the frame."""
    bounds = sorted(_bound(host, last_ns.get(host.key, 0)) for host in hosts)
    return sum(bounds[-2:])


def _bound(host: Host, last_ns: int) -> int:
    """How far this host's times may be from the frame's clock, from its first anchor to ``last_ns``."""
    total, low, high = 0, host.anchor.monotonic_ns if host.anchor else 0, last_ns
    for each in host.to_frame:
        total += each.bound(low, max(low, high))
        low, high = each.at(low), each.at(high)
    return total
