"""For all tests: properties are about right answers, never about how fast a loaded machine finds them."""

from hypothesis import settings

settings.register_profile("rltel", deadline=None)
settings.load_profile("rltel")
