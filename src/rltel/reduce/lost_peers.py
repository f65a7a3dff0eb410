"""Which errors say that another rank is gone, and nothing of why: those of torch.distributed's communication.

Told by names and words, as gloo's are plain RuntimeErrors, and torch is not imported for this.
"""

_TYPES = {"DistError", "DistBackendError", "DistNetworkError", "DistStoreError"}
_WORDS = "/gloo/", "monitoredBarrier"  # gloo's errors begin with the place in its source
_DEPTH = 20


def is_lost_peer(error: BaseException | None) -> bool:
    """Whether an error, or what it was raised from, is of the communication between ranks."""
    for _ in range(_DEPTH):  # causes could go in a circle
        if error is None:
            return False
        if _TYPES.intersection(each.__name__ for each in type(error).__mro__):
            return True
        if type(error) is RuntimeError and any(word in str(error) for word in _WORDS):
            return True
        error = error.__cause__
    return False
