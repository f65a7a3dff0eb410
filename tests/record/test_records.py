from __future__ import annotations

from rltel.record.records import Begin, End, Ids, Site


def test_a_site_is_its_own_span_unless_told_otherwise() -> None:
    bare, named = Site("reward", "phase"), Site("learning", "exclusive", "rl.train", {"rl.phase": "learning"})
    assert (bare.span_name, bare.span_attributes) == ("reward", None)
    assert (named.name, named.span_name, named.span_attributes) == ("learning", "rl.train", {"rl.phase": "learning"})


def test_a_site_says_what_it_is() -> None:
    assert repr(Site("a", "b")) == "Site('a', 'b')"


def test_sites_are_told_apart_by_place_not_by_name() -> None:
    """What reads the records remembers things by site, and by hash: it has to be quick."""
    assert len({Site("a", ""), Site("a", "")}) == 2


def test_what_is_not_said_is_none() -> None:
    assert Begin(1, Site("a", ""))[2:] == (None, None, None, None, None, "")
    assert End(1) == (1, None, None, None, 0)
    assert Ids(2, 3) == (2, 3)
