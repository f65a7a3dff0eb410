"""A million commits: what memory they cost, and how many a second go through.

    python benchmarks/endurance.py [COMMITS]

Every commit goes to the record (whose file is /dev/null, by the worker), TensorBoard and a Prometheus endpoint that is
scraped now and then. A line each tenth of the way: resident memory, threads, and bytes on disk. Memory should be flat.
"""

import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import rltel

KEYS = 8
PAUSE_EVERY = 100  # commits; then what is queued is waited for, as no trainer commits faster than it is drained


def resident_mb() -> float:
    """What the process holds in memory."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def size_mb(folder: Path) -> float:
    """Of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main(commits: int) -> None:
    """Commit, and tell."""
    with tempfile.TemporaryDirectory() as folder:
        telemetry = rltel.init(
            {
                "jsonl": {"path": "/dev/null", "write": "worker"},
                "tensorboard": {"path": "{run_dir}/tb"},
                "prometheus": {"enabled": True, "port": 0},
            },
            run_dir=folder,
        )
        print(f"{'commits':>10} {'RSS MB':>8} {'threads':>8} {'disk MB':>8} {'commits/s':>10}")
        began = time.perf_counter()
        for step in range(commits + 1):
            if step % PAUSE_EVERY == 0:
                rltel.flush(60.0)
            if step % max(commits // 10, 1) == 0:
                if telemetry.prometheus_url:
                    urllib.request.urlopen(telemetry.prometheus_url, timeout=30).read()
                rate = step / (time.perf_counter() - began)
                disk = size_mb(Path(folder))
                print(
                    f"{step:>10,} {resident_mb():>8.1f} {threading.active_count():>8} {disk:>8.1f} {rate:>10,.0f}",
                    flush=True,
                )
            rltel.scalar({f"loss/{key}": 0.5 * key for key in range(KEYS)})
            rltel.count(episodes=1)
            rltel.commit(step=step)
        rltel.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else 1_000_000)
