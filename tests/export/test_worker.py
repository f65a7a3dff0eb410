"""A thread of its own for a destination that may be slow: bounded, counted, and gone in time."""

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from export.making import wait_until
from rltel.export.sink import Destination
from rltel.export.worker import Parcel, Worker

LONG = 30.0


class Post:
    """A worker and what it sent."""

    def __init__(self, queue_bytes: int = 10**6) -> None:
        self.account = Destination("d")
        self.sent: list[int] = []
        self.closed = threading.Event()
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.worker = Worker("d", self.closed.set, self.account, queue_bytes, first_pause_s=0.001)

    def put(self, number: int, *, size: int = 10, items: int = 1, send: Callable[[], int | None] | None = None) -> None:
        self.worker.put_parcel(Parcel(send or (lambda: self.sent.append(number)), size, items))

    def hang(self, items: int = 1) -> None:
        """Put a parcel whose sending does not return until it is let go."""

        def send() -> None:
            self.entered.set()
            self.let_go.wait(LONG)

        self.put(-1, items=items, send=send)
        assert self.entered.wait(LONG)

    def is_waiting(self) -> bool:
        """Whether its thread waits: for something to send, or until it is time to try again."""
        return bool(self.worker._changed._waiters)  # type: ignore[attr-defined]  # CPython's own

    def empty(self) -> bool:
        return self.worker.wait_empty(time.monotonic() + LONG)


@pytest.fixture
def post() -> Iterator[Post]:
    made = Post(queue_bytes=100)
    yield made
    made.let_go.set()
    made.worker.close(time.monotonic() + LONG)


def test_parcels_are_sent_in_order_and_counted_in_items(post: Post) -> None:
    for number in range(3):
        post.put(number, items=10)
    assert post.empty()
    assert (post.sent, post.account.exported_total, post.account.dropped_totals) == ([0, 1, 2], 30, {})


def test_the_oldest_go_where_there_is_no_room_counted_in_items(post: Post) -> None:
    post.hang()
    for number in range(15):
        post.put(number, items=2)
    assert post.account.dropped_totals == {"queue_full": 5 * 2}
    post.let_go.set()
    assert post.empty()
    assert post.sent == list(range(5, 15))


def test_the_newest_stays_however_large_it_is(post: Post) -> None:
    post.hang()
    post.put(1)
    post.put(2, size=10**9)
    post.let_go.set()
    assert post.empty()
    assert post.sent == [2]


def test_who_puts_does_not_wait_for_one_that_hangs(post: Post) -> None:
    post.hang()
    post.put(1)
    assert post.sent == []
    assert not post.worker.wait_empty(time.monotonic())


def test_one_that_raises_costs_itself_only(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise ValueError("gone")

    post.put(0, items=7, send=fails)
    post.put(1)
    assert post.empty()
    assert (post.sent, post.account.exported_total, post.account.dropped_totals) == ([1], 1, {"error": 7})
    assert [record.message for record in caplog.records] == ["d: gone (counted in rltel_dropped_total; said once)"]


def test_what_the_receiver_refused_is_not_counted_as_arrived(post: Post) -> None:
    post.put(0, items=7, send=lambda: 3)
    assert post.empty()
    assert post.account.exported_total == 4


class TestClose:
    def test_sends_what_waits_and_closes(self) -> None:
        post = Post()
        for number in range(50):
            post.put(number)
        post.worker.close(time.monotonic() + LONG)
        assert post.sent == list(range(50))
        assert post.closed.is_set()

    def test_ends_at_its_deadline_and_counts_what_is_left_once(self) -> None:
        post = Post()
        post.hang(items=5)
        post.put(1, items=6)
        for _ in range(2):
            post.worker.close(time.monotonic() + 0.05)
        assert post.account.dropped_totals == {"shutdown": 11}
        post.let_go.set()
        wait_until(post.closed.is_set, "the close")
        assert (post.account.exported_total, post.account.dropped_totals) == (0, {"shutdown": 11})
        assert post.sent == []

    def test_what_comes_later_is_counted(self) -> None:
        post = Post()
        post.worker.close(time.monotonic() + LONG)
        post.put(1, items=4)
        assert post.account.dropped_totals == {"shutdown": 4}

    def test_a_destination_that_cannot_be_closed_is_said(self, caplog: pytest.LogCaptureFixture) -> None:
        def fails() -> None:
            raise OSError("stuck")

        account = Destination("d")
        Worker("d", fails, account, 100).close(time.monotonic() + LONG)
        wait_until(lambda: "error" in account.dropped_totals, "the failure")
        assert account.dropped_totals == {"error": 0}


class Away:
    """A receiver that is away for a number of tries."""

    def __init__(self, post: Post, tries: int, error: Exception) -> None:
        self.post, self.left, self.error = post, tries, error
        self.tries = 0

    def send(self, number: int) -> Callable[[], None]:
        def send() -> None:
            self.tries += 1
            if self.left > 0:
                self.left -= 1
                raise self.error
            self.post.sent.append(number)

        return send


class RefusalError(ConnectionError):
    retryable = False


class TestOutages:
    def test_cost_nothing_and_keep_the_order(self, post: Post, caplog: pytest.LogCaptureFixture) -> None:
        receiver = Away(post, 4, ConnectionRefusedError("refused"))
        for number in range(3):
            post.put(number, send=receiver.send(number))
        assert post.empty()
        assert (post.sent, post.account.exported_total, post.account.dropped_totals) == ([0, 1, 2], 3, {})
        assert (receiver.tries, post.account.retries_total) == (3 + 4, 4)
        assert [record.message for record in caplog.records] == [
            "d: refused (will be tried again; said once for each outage)"
        ]

    def test_each_is_said_once(self, post: Post, caplog: pytest.LogCaptureFixture) -> None:
        for number in range(2):
            post.put(number, send=Away(post, 3, TimeoutError("late")).send(number))
            assert post.empty()
        assert len(caplog.records) == 2

    def test_what_the_protocol_says_is_final_is_not_tried_again(self, post: Post) -> None:
        receiver = Away(post, 1, RefusalError("no"))
        post.put(0, send=receiver.send(0))
        post.put(1, send=receiver.send(1))
        assert post.empty()
        assert (receiver.tries, post.sent, post.account.dropped_totals) == (2, [1], {"error": 1})

    def test_what_is_refused_for_too_long_does_not_block_the_rest(self) -> None:
        post = Post()
        post.worker._first_pause_s = 0.0
        post.put(0, send=Away(post, 10**9, ConnectionError("gone")).send(0))
        post.put(1)
        assert post.empty()
        assert (post.sent, post.account.dropped_totals) == ([1], {"error": 1})
        post.worker.close(time.monotonic() + LONG)

    def test_do_not_hold_up_the_end(self) -> None:
        post = Post()
        post.worker._first_pause_s = 1000.0
        receiver = Away(post, 10**9, ConnectionError("gone"))
        post.put(0, items=3, send=receiver.send(0))
        post.put(1, items=4, send=receiver.send(1))
        # Where the end begins between the first try and its pause, there is no pause to be cut short.
        wait_until(lambda: receiver.tries == 1 and post.is_waiting(), "the pause after the first try")
        post.worker.close(time.monotonic() + LONG)
        assert post.closed.wait(LONG)
        assert receiver.tries == 3, "one more try each, without a pause"
        assert sum(post.account.dropped_totals.values()) == 7

    def test_leave_the_program_s_random_numbers_alone(self, post: Post) -> None:
        random.seed(42)
        expected = random.random()
        random.seed(42)
        post.put(0, send=Away(post, 2, ConnectionError("gone")).send(0))
        assert post.empty()
        assert random.random() == expected
