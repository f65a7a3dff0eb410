"""What telemetry costs a real training: the SAC demo with everything on against everything off, same seed, in turns.

    python benchmarks/demo_overhead.py [PAIRS] [TICKS]

Two modes: as fast as it goes (the demo's iterations take about 3 ms, and both cores are busy), and 100 iterations a
second with ``run.log_interval: 10``. Each figure is the median over pairs of runs, with their spread.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = """
import json, resource, sys, time
sys.path.insert(0, "examples")
import sac_pendulum as demo
pace, out = float(sys.argv[1]), sys.argv[2]
found, real = {}, demo.Learner.run_iteration

def run(self, whole=demo.Learner.run):
    began, thread, cpu = time.perf_counter(), time.thread_time(), time.process_time()
    self.due = began
    farewell = whole(self)
    found.update(wall=time.perf_counter() - began, thread=time.thread_time() - thread, learner=time.process_time() - cpu)
    return farewell

def paced(self, tick):
    self.due += pace
    time.sleep(max(0.0, self.due - time.perf_counter()))
    return real(self, tick)

demo.Learner.run = run
if pace:
    demo.Learner.run_iteration = paced
demo.where_time_went = lambda run_dir: ""
demo.main(sys.argv[3:])
found["total"] = sum(r.ru_utime + r.ru_stime for r in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
open(out, "w").write(json.dumps(found))
"""  # noqa: E501  # a program of its own


def run(folder: Path, telemetry: str, pace_s: float, ticks: int, **environ: str) -> dict[str, float]:
    """One training, and what it took: seconds of the loop, of its thread, and of all processes from start to end."""
    out = folder / "found.json"
    arguments = ["--telemetry", telemetry, "--ticks", str(ticks), "--log-root", str(folder / "logs")]
    subprocess.run(
        [sys.executable, "-c", PROGRAM, str(pace_s), str(out), *arguments],
        cwd=ROOT,
        env={**os.environ, "RLTEL_PROMETHEUS_LINGER_S": "0", **environ},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    found: dict[str, float] = json.loads(out.read_text())
    return found


def compare(pairs: int, pace_s: float, ticks: int, **environ: str) -> None:
    """Prints how much more each takes with telemetry on."""
    more: dict[str, list[float]] = {}
    for number in range(pairs):
        with tempfile.TemporaryDirectory() as name:
            order = ("off", "on") if number % 2 else ("on", "off")
            both = {which: run(Path(name), which, pace_s, ticks, **environ) for which in order}
        for what, off in both["off"].items():
            more.setdefault(what, []).append((both["on"][what] / off - 1) * 100)
        base = both["off"]
    for what, label in (
        ("wall", "an iteration"),
        ("thread", "CPU of the training thread"),
        ("learner", "CPU of the learner process, in the loop"),
        ("total", "CPU of all processes, start and end too"),
    ):
        seen = more[what]
        print(
            f"  {label:42} {statistics.median(seen):+6.1f}%  ({min(seen):+.1f} to {max(seen):+.1f}; "
            f"off: {base[what] / ticks * 1e3:.2f} ms an iteration)"
        )


if __name__ == "__main__":
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    ticks = int(sys.argv[2]) if len(sys.argv) > 2 else 4000
    print(f"as fast as it goes, {pairs} pairs of {ticks} ticks")
    compare(pairs, 0.0, ticks)
    print(f"100 iterations a second, log_interval 10, {pairs} pairs of {ticks // 3} ticks")
    compare(pairs, 0.01, ticks // 3, RLTEL_RUN_LOG_INTERVAL="10")
