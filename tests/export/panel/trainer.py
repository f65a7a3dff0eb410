"""A program that commits, prints, logs and starts children while its panel is on. Run by the tests, in a terminal."""

import logging
import os
import subprocess
import sys
import time

from export.making import commit
from export.panel.making import ASYNC, SAC
from rltel.export.panel import sink as sink_module
from rltel.export.panel.sink import PanelSettings, open_panel

FAMILIES = {"sac": SAC, "async": ASYNC}


def main(steps: int, ends: str, family: str) -> None:
    """`ends`: how it does: well, raise, exit (without a word to anybody). `family`: what it commits."""
    logging.basicConfig(level=logging.INFO, format="logged %(message)s")  # bound to stderr before there is a panel
    sink_module._CLOSE_S = 60.0  # a busy machine's terminal takes the last frame, too
    sink = open_panel(sys.stdout, PanelSettings(10.0, algo=family, task="go2_joystick_flat"), environ=os.environ)
    print("begins")
    try:
        for step in range(steps):
            sink.write(commit({**FAMILIES[family], "Train/iteration": float(step)}, step=step), [])
            if step % 10 == 0:
                print(f"printed {step}")
                logging.info(step)
            if step % 50 == 0:
                subprocess.run(["echo", f"child {step}"], check=True)
            time.sleep(0.02)
        if ends == "raise":
            raise RuntimeError("the trainer failed")
        if ends == "exit":
            os._exit(3)
    finally:
        sink.close()
    print("ended")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
