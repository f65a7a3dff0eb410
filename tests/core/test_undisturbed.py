"""The program's random numbers stay as seeded."""

import random

import pytest

from export.making import run_python
from rltel.core.undisturbed import undisturbed


def test_what_draws_inside_leaves_the_rest_as_it_was():
    random.seed(42)
    expected = [random.random() for _ in range(3)]
    random.seed(42)
    with undisturbed():
        random.random()
    assert [random.random() for _ in range(3)] == expected


def test_after_an_error_too():
    random.seed(42)
    before = random.getstate()
    with pytest.raises(ZeroDivisionError), undisturbed():
        1 / (0 * random.random())
    assert random.getstate() == before


def test_rich_draws_when_it_is_imported():
    """Why this is here. It needs a process where nobody has imported rich yet."""
    code = (
        "import random, sys\nfrom rltel.core.undisturbed import undisturbed\n"
        "before = random.getstate()\n"
        "with undisturbed():\n    import rich.style\n    print(random.getstate() == before)\n"
        "print(random.getstate() == before)\n"
    )
    assert run_python(code).stdout.split() == ["False", "True"]
