"""What rltel raises. Every message names the key or path, what was given and what is needed."""


class RltelError(Exception):
    """Base of every error that rltel raises on purpose."""


class ConfigError(RltelError, ValueError):
    """The config has an unknown key, a wrong type, or settings that contradict each other."""


class IdentityError(RltelError):
    """This process cannot tell which run it belongs to, or its place in it."""


class RecordError(RltelError, ValueError):
    """A recording call that cannot be right: wrong shape, unknown denominator, one key used as two kinds."""


class PhaseError(RltelError):
    """A phase that the phase set does not have, or one entered outside an iteration."""


class PayloadError(RltelError, ValueError):
    """Another process's payload is broken, of a version we do not read, or not what it claims to be."""


class TraceError(RltelError):
    """A trace file that cannot be read or placed on the common clock."""


class ReductionError(RltelError):
    """Ranks could not be reduced: one of them cannot export, or they were not set up alike. Nothing was reset."""
