"""Puts complete slices on lanes, so that the slices of a lane nest.

Perfetto closes the innermost open slice at every end, so two slices of one track that merely overlap come out with each
other's ends. Here each slice gets a lane on which it is disjoint from every other slice, or inside it, or around it.
Slices may come in any order; a lane that they once got is never changed.

Ties are decided by the order of writing, as in the trace processor: what begins together nests in the order of the
file, and an end comes before a begin of the same time only if it is written first. So a parent that comes after a child
with the same begin gets another lane.

Memory is bounded for streams without end: beyond ``limit`` slices the older half is forgotten, all but the hull that
they cover, which later slices may be beside or around, never inside. That costs at most a lane more than needed.
"""

import heapq
from bisect import bisect_right
from collections.abc import Hashable, Iterator

LIMIT = 1 << 16
_TRIED = 16  # lanes that are looked at in their order, before the one that has been free for longest
OPEN = (1 << 63) - 1
"""The end of a slice that has none: nothing may come after it on its lane."""


class _Node:
    """One slice of a lane (or, as a hull, several), and what is inside it, in the order of time."""

    __slots__ = ("begin", "children", "end", "id", "is_hull", "parent")

    def __init__(self, begin: int, end: int, id: Hashable, parent: Hashable, is_hull: bool = False) -> None:
        self.begin = begin
        self.end = end
        self.id = id
        self.parent = parent
        self.is_hull = is_hull
        self.children: list[_Node] = []


def _end_of(node: _Node) -> int:
    return node.end


class _Lane:
    """The slices of one track: a tree."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.top = _Node(-OPEN, OPEN, None, None)
        self.family: Hashable = None
        self.awaited = 0
        """Parents that are to come, of this family: until then nobody else's slices get in their way."""

    def is_open_to(self, family: Hashable) -> bool:
        return not self.awaited or self.family == family

    @property
    def free_from(self) -> int:
        """Since when nothing is on it: a slice that begins then or later fits."""
        return self.top.children[-1].end if self.top.children else -OPEN

    def add(self, node: _Node) -> bool:
        """Put a slice here if it fits."""
        begin, end = node.begin, node.end
        around = self.top
        while True:
            inside = around.children
            first = len(inside) if not inside or inside[-1].end <= begin else bisect_right(inside, begin, key=_end_of)
            if first == len(inside) or inside[first].begin > begin:
                break
            around = inside[first]
            if end > around.end or around.is_hull:
                return False
            if first + 1 < len(inside) and inside[first + 1].begin <= end:
                return False  # what comes next was written already, so its begin would come before this end
        if around is not self.top and not _is_child(node, around):
            return False
        last = first
        while last < len(inside) and inside[last].end <= end:
            if not _is_child(inside[last], node):
                return False
            last += 1
        if last < len(inside) and inside[last].begin <= end:
            return False
        node.children = inside[first:last]
        inside[first:last] = [node]
        return True

    def forget(self, until: int) -> int:
        """Replace all that ended by then by hulls. Returns how many slices and hulls are left."""
        left = 0
        around = self.top
        while True:
            inside = around.children
            old = bisect_right(inside, until, key=_end_of)
            if old:
                inside[:old] = [_hull(inside[:old])]
            left += len(inside)
            for node in inside[bool(old) + 1 :]:
                left += _count_below(node)
            if len(inside) == bool(old):
                return left
            around = inside[bool(old)]  # the only one that can hold older ones: it begins before the rest

    def ends(self) -> list[int]:
        """The ends of all slices."""
        found: list[int] = []
        below = [self.top]
        while below:
            inside = below.pop().children
            found.extend(map(_end_of, inside))
            below.extend(node for node in inside if node.children)
        return found


def _is_child(inner: _Node, outer: _Node) -> bool:
    """Whether it may be drawn inside: slices without an id nest by time, others only in their own parent."""
    return inner.parent == outer.id


def _hull(nodes: list[_Node]) -> _Node:
    parents = {node.parent for node in nodes}
    return _Node(nodes[0].begin, nodes[-1].end, _NOBODY, parents.pop() if len(parents) == 1 else _NOBODY, is_hull=True)


def _count_below(node: _Node) -> int:
    counted = 0
    below = [node]
    while below:
        inside = below.pop().children
        counted += len(inside)
        below.extend(child for child in inside if child.children)
    return counted


_NOBODY = object()


class _Group:
    """The lanes that the slices of one thread, process or trace share."""

    def __init__(self) -> None:
        self.lanes: list[_Lane] = []
        self.by_time: list[tuple[int, int]] = []  # (free from, lane), a heap; outdated entries are renewed when met

    def free(self, begin: int) -> _Lane | None:
        """The lane that has been free for longest, if it is."""
        while self.by_time:
            known, index = self.by_time[0]
            now = self.lanes[index].free_from
            if now == known:
                return self.lanes[index] if now <= begin else None
            heapq.heapreplace(self.by_time, (now, index))
        return None

    def new(self) -> _Lane:
        made = _Lane(len(self.lanes))
        self.lanes.append(made)
        heapq.heappush(self.by_time, (made.free_from, made.index))
        return made


class Lanes:
    """Gives every slice a lane of its group, by number from 0."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = self._bound = limit
        self._groups: dict[Hashable, _Group] = {}
        self._kept = 0
        self._lane_of: dict[Hashable, int] = {}
        self._awaited: dict[Hashable, list[_Lane]] = {}  # by parent that is to come: where its children are

    def place(
        self,
        group: Hashable,
        begin: int,
        end: int,
        id: Hashable = None,
        parent: Hashable = None,
        family: Hashable = None,
    ) -> int:
        """The lane of a slice: its children's (they usually come first), its parent's, or any where it fits.

        Slices without ``id`` nest by time alone, as those of a thread do. One with an ``id`` is drawn inside another
        only if that is its ``parent``: concurrent work is beside it, not within. With ``family`` (a trace), the parent
        is expected to come later, and until then only that family's slices share the lane. Raises `ValueError` if the
        slice ends before it begins.
        """
        if end < begin:
            raise ValueError(f"a slice that ends ({end}) before it begins ({begin})")
        held = self._groups.get(group)
        if held is None:
            held = self._groups[group] = _Group()
        node = _Node(begin, end, id, parent)
        lane = self._fitting(group, held, node, family)
        if id is not None:
            self._remember(group, node, lane, family)
        self._kept += 1
        if self._kept > self._bound:
            self._forget()
        return lane.index

    def lane_of(self, group: Hashable, id: Hashable) -> int | None:
        """The lane that the slice with this id got, if that is not too long ago."""
        return self._lane_of.get((group, id))

    def _fitting(self, name: Hashable, group: _Group, node: _Node, family: Hashable) -> _Lane:
        for lane in self._preferred(name, group, node):
            if lane.add(node):
                return lane
        for lane in group.lanes[:_TRIED]:
            if lane.is_open_to(family) and lane.add(node):
                return lane
        free = group.free(node.begin)
        if free is not None and free.is_open_to(family) and free.add(node):
            return free
        made = group.new()
        made.add(node)
        return made

    def _preferred(self, name: Hashable, group: _Group, node: _Node) -> Iterator[_Lane]:
        if node.id is not None:
            yield from self._awaited.get((name, node.id), ())
        if node.parent is not None:
            known = self._lane_of.get((name, node.parent))
            if known is not None:
                yield group.lanes[known]
            yield from self._awaited.get((name, node.parent), ())[:_TRIED]

    def _remember(self, group: Hashable, node: _Node, lane: _Lane, family: Hashable) -> None:
        self._lane_of[group, node.id] = lane.index
        if len(self._lane_of) > self._limit:
            del self._lane_of[next(iter(self._lane_of))]
        for held in self._awaited.pop((group, node.id), ()):
            held.awaited -= 1
        if family is None or node.parent is None or (group, node.parent) in self._lane_of:
            return
        waiting = self._awaited.setdefault((group, node.parent), [])
        if lane not in waiting:
            waiting.append(lane)
            lane.family = family
            lane.awaited += 1
        if len(self._awaited) > self._limit:
            for held in self._awaited.pop(next(iter(self._awaited))):
                held.awaited -= 1

    def _forget(self) -> None:
        """Forget the older half of what is known."""
        lanes = [lane for group in self._groups.values() for lane in group.lanes]
        ends = sorted(end for lane in lanes for end in lane.ends())
        until = min(ends[len(ends) // 2], OPEN - 1)
        self._kept = sum(lane.forget(until) for lane in lanes)
        self._bound = max(self._limit, 2 * self._kept)
