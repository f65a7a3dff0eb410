"""Real programs that the tests drive: trace processor, Prometheus, an OTLP agent, protobuf readers.

Each module wraps one of them as a small function or context manager. What is not installed makes
the test skip, or fail where ``RLTEL_REQUIRE_SERVERS=1`` (see `realparts.requirements`).
"""
