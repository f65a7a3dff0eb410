"""Contexts that end in another order than they began, or in another task, leave nothing behind and say nothing."""

import asyncio
import contextvars
import gc
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import context as otel_context

from rltel.core.context import current, span_context, with_span
from rltel.core.in_place import InPlace, is_ours


def put(number):
    span = span_context(number, number)
    return InPlace(with_span(span), span)


def in_place():
    found = current()
    return None if found is None else found.span_id


@pytest.fixture(autouse=True)
def _nothing_is_left(caplog):
    yield
    assert in_place() is None
    # Not what others say: of earlier tests' tasks that are collected only now, say.
    assert not [each for each in caplog.records if each.name.startswith(("opentelemetry", "rltel"))]


def test_one_in_another():
    outer = put(1)
    inner = put(2)
    assert in_place() == 2
    inner.remove()
    assert in_place() == 1
    outer.remove()


@given(st.permutations(range(5)))
def test_in_any_order_the_innermost_that_is_left_is_in_place(order):
    opened = [put(number + 1) for number in range(5)]
    left = set(range(5))
    for number in order:
        was_innermost = number == max(left)
        left.remove(number)
        opened[number].remove()
        expected = max(left) + 1 if left else None
        if was_innermost:
            assert in_place() == expected
    assert in_place() is None


def test_is_told_from_the_users():
    assert not is_ours(span_context(1, 1))
    ours = put(1)
    assert is_ours(current())
    token = otel_context.attach(with_span(span_context(1, 7)))
    assert not is_ours(current())
    inner = put(2)
    assert is_ours(current())
    inner.remove()
    assert not is_ours(current())
    otel_context.detach(token)
    assert is_ours(current())
    ours.remove()
    assert not is_ours(span_context(1, 1))


def test_one_without_a_span_leaves_it_as_it_is():
    ours = put(1)
    values_only = InPlace(otel_context.set_value("key", 1), None)
    assert is_ours(current())
    values_only.remove()
    assert otel_context.get_value("key") is None
    ours.remove()


def test_what_a_user_left_in_place_inside_goes_too():
    ours = put(1)
    otel_context.attach(with_span(span_context(1, 7)))
    ours.remove()
    assert in_place() is None


def test_removed_in_another_thread():
    ours = put(1)
    thread = threading.Thread(target=ours.remove)
    thread.start()
    thread.join()
    later = put(2)
    later.remove()  # it finds that the one around it is over


def test_removed_in_another_task():
    async def main():
        outer = put(1)
        inner = put(2)

        async def other():
            assert in_place() == 2
            inner.remove()

        await asyncio.create_task(other())
        outer.remove()
        assert in_place() in (None, 2)

    asyncio.run(main())


@pytest.mark.parametrize("while_it_is_over", [False, True])
def test_a_task_that_outlives_it_returns_to_what_it_was_created_in(while_it_is_over):
    async def child(go):
        own = None if while_it_is_over else put(2)
        await go.wait()
        own = own or put(2)
        assert in_place() == 2
        own.remove()
        return in_place()

    async def main():
        go = asyncio.Event()
        ours = put(1)
        task = asyncio.create_task(child(go))
        await asyncio.sleep(0)
        ours.remove()
        assert in_place() is None
        go.set()
        return await task

    assert asyncio.run(main()) == 1


def test_keeps_no_chain():
    """Each is put in place where the last one was, in a copy of its context: as tasks that start tasks do."""

    def link(context):
        def there():
            opened = put(1)
            copied = contextvars.copy_context()
            opened.remove()
            return copied

        return context.run(there)

    def there_are():
        gc.collect()
        return sum(type(each) is InPlace for each in gc.get_objects())

    before = there_are()  # what earlier tests left open
    context = contextvars.copy_context()
    for _ in range(100):
        context = link(context)
    assert there_are() - before < 5
