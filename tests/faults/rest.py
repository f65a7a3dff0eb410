"""What a program does before it ends, where the time for its end is short: it lets the pipeline's own thread finish.

What is lost then is lost by a destination, and not on the way to it, however busy the machine is.
"""

AT_REST = """
def at_rest(telemetry):
    pipeline, until = telemetry._pipeline, time.monotonic() + 120
    telemetry.flush(0)  # asks for it, and does not wait for destinations that hang
    while pipeline and pipeline._awaited and time.monotonic() < until:
        time.sleep(0.01)
"""
