"""What a registry asks: our series, our own health, and which process this is. Several instances share a registry."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from weakref import WeakKeyDictionary

from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from rltel.core.identity import Identity
from rltel.export.accounts import account_points, start_point
from rltel.export.prometheus.exposition import Family, Labels, family_named
from rltel.export.prometheus.table import PrometheusSink, families_of
from rltel.export.sink import Destination
from rltel.names.otel import Namer

_INSTANCE = "rl_instance"


class RunCollector(Collector):
    """The families of one instance."""

    def __init__(
        self,
        sink: PrometheusSink,
        destinations: Callable[[], Iterable[Destination]],
        identity: Identity,
        namer: Namer | None = None,
        started_s: float | None = None,
    ) -> None:
        self._sink = sink
        self._started_s = time.time() if started_s is None else started_s
        self._destinations = destinations
        self._namer = namer
        self.identity = identity
        self.scrapes = 0
        """How often somebody asked."""

    def describe(self) -> Iterable[Metric]:
        """Nothing is promised: names come and go. (Without this, a registry may collect to find out.)"""
        return ()

    def collect(self) -> Iterable[Metric]:
        """All families."""
        self.scrapes += 1
        yield from self._sink.families()
        yield _target_info(self.identity)
        about_us = account_points(list(self._destinations()), self._namer)
        yield from families_of([start_point(self.identity.incarnation, self._started_s), *about_us])
        yield from self._held()

    def _held(self) -> Iterable[Metric]:
        """What the endpoint alone can say."""
        series = Family("rltel_series", "Series that the endpoint holds.", "gauge")
        series.add_sample("rltel_series", {}, len(self._sink))
        expired = Family("rltel_series_expired", "Gauges that went since nothing updated them.", "counter")
        expired.add_sample("rltel_series_expired_total", {}, self._sink.expired)
        yield from (series, expired)


def _target_info(identity: Identity) -> Metric:
    info = Family("target", "The process that is scraped.", "info")
    labels = {
        "instance_id": identity.instance_id,
        "rl_run_id": identity.run_id,
        "rl_role": identity.role,
        "rl_rank": str(identity.index),
    }
    info.add_sample("target_info", labels, 1.0)
    return info


class SharedCollector(Collector):
    """All instances on one registry as one collector: one family of each name, however many have it."""

    def __init__(self) -> None:
        self._members: dict[str, tuple[RunCollector, Mapping[str, str]]] = {}

    def describe(self) -> Iterable[Metric]:
        """See `RunCollector.describe`."""
        return ()

    def add(self, member: RunCollector) -> Callable[[], None]:
        """One more. Not being the only one, its series carry ``rl_instance``. Returns what takes it away again."""
        base = name = f"{member.identity.run_id}/{member.identity.name}"
        number = 1
        while name in self._members:
            number += 1
            name = f"{base}#{number}"
        self._members[name] = (member, {_INSTANCE: name} if self._members else {})

        def leave() -> None:
            self._members.pop(name, None)

        return leave

    def forget(self) -> None:
        """In a forked child: the instances are the parent's."""
        self._members = {}

    def collect(self) -> Iterable[Metric]:
        """The families of all."""
        members = list(self._members.values())
        if len(members) == 1 and not members[0][1]:
            return members[0][0].collect()
        families: dict[str, Family] = {}
        for member, labels in members:
            for family in member.collect():
                _merge(families, family, labels)
        return families.values()


_shared: WeakKeyDictionary[CollectorRegistry, SharedCollector] = WeakKeyDictionary()


def join(registry: CollectorRegistry, collector: RunCollector) -> Callable[[], None]:
    """Show a collector on a registry, beside others that may be there. Returns what takes it away again."""
    mine = SharedCollector()
    shared = _shared.setdefault(registry, mine)
    if shared is mine:
        registry.register(shared)
    return shared.add(collector)


def forget() -> None:
    """In a forked child: start empty on every registry."""
    for shared in list(_shared.values()):
        shared.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)


def _merge(families: dict[str, Family], family: Metric, more: Mapping[str, str]) -> None:
    exposed = f"{family.name}_total" if family.type == "counter" else family.name
    mine = families.get(exposed)
    if mine is None:
        mine = families[exposed] = family_named(exposed, family.type, family.documentation)
    mine.join(family.type)
    for sample in family.samples:
        mine.samples.append(sample._replace(labels=Labels({**sample.labels, **more})) if more else sample)
