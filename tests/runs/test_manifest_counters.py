"""Counters of the manifest: maxima of a report against marks of a run."""

import queue
from typing import Any

import pytest

from rltel.runs.manifest_counters import InFlight, ReplayIngress


def under_way(flight: InFlight, requests: int) -> None:
    for _ in range(requests):
        flight.requested()


def back(flight: InFlight, requests: int) -> None:
    for _ in range(requests):
        flight.taken()
        flight.consumed()


class TestInFlight:
    def test_counts_what_waits_and_what_is_under_way(self) -> None:
        flight = InFlight()
        under_way(flight, 3)
        flight.taken()
        assert flight.fields() == {
            "queue_depth": 2,
            "publication_lag": 3,
            "max_in_flight": 3,
            "max_publication_lag": 3,
        }

    def test_maxima_begin_anew_with_an_accepted_report(self) -> None:
        flight, sent = InFlight(), queue.Queue[dict[str, int]](1)
        under_way(flight, 3)
        back(flight, 3)
        assert flight.publish(sent.put_nowait)
        under_way(flight, 1)
        assert (sent.get()["max_in_flight"], flight.fields()["max_in_flight"]) == (3, 1)

    @pytest.mark.parametrize("how", ["full", "false"])
    def test_a_report_that_was_not_accepted_keeps_its_maxima(self, how: str) -> None:
        flight, full = InFlight(), queue.Queue[dict[str, int]](1)
        full.put({})
        under_way(flight, 5)
        back(flight, 5)
        assert not flight.publish(full.put_nowait if how == "full" else lambda _: False)
        under_way(flight, 1)
        assert flight.fields()["max_in_flight"] == 5
        full.get()
        assert flight.publish(full.put_nowait)
        assert (full.get()["max_in_flight"], flight.fields()["max_in_flight"]) == (5, 1)

    def test_an_error_of_the_sender_passes_on_and_keeps_the_maxima(self) -> None:
        flight = InFlight()
        under_way(flight, 2)
        back(flight, 2)
        with pytest.raises(BrokenPipeError):
            flight.publish(self._broken)
        assert flight.fields()["max_in_flight"] == 2

    @staticmethod
    def _broken(_: Any) -> None:
        raise BrokenPipeError

    def test_what_is_still_under_way_belongs_to_the_next_report_too(self) -> None:
        """UniLab begins again at 0 there, and reports fewer at most than there are."""
        flight = InFlight()
        under_way(flight, 2)
        flight.publish(lambda _: None)
        assert flight.fields()["max_in_flight"] == 2

    def test_a_peak_while_the_report_is_on_its_way_is_the_next_one_s(self) -> None:
        flight, sent = InFlight(), []

        def send(fields: dict[str, int]) -> None:
            under_way(flight, 4)
            back(flight, 4)
            sent.append(fields)

        under_way(flight, 1)
        back(flight, 1)
        flight.publish(send)
        assert (sent[0]["max_in_flight"], flight.fields()["max_in_flight"]) == (1, 4)


class TestReplayIngress:
    def test_the_high_water_mark_is_the_run_s(self) -> None:
        ingress = ReplayIngress(depth=4, slot_rows=256)
        for _ in range(3):
            ingress.published()
        for _ in range(3):
            ingress.released()
        ingress.published()
        found = ingress.fields()
        assert (found["high_water_occupancy"], found["occupancy"], found["published_sequence"]) == (3, 1, 4)

    def test_counts_waits_and_drops_by_reason(self) -> None:
        ingress = ReplayIngress(depth=1, slot_rows=1)
        ingress.waited(0.25)
        ingress.waited(0.5)
        ingress.dropped("closed")
        ingress.dropped("stop")
        ingress.dropped("stop")
        found = ingress.fields()
        assert (found["backpressure_waits"], found["backpressure_wait_s"]) == (2, 0.75)
        names = ("early_returns", "dropped_batches", "closed_returns", "stop_returns")
        assert [found[name] for name in names] == [3, 3, 1, 2]

    def test_needs_a_slot(self) -> None:
        with pytest.raises(ValueError, match="at least one slot and one row, got 0 of 1"):
            ReplayIngress(depth=0, slot_rows=1)
