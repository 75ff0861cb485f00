"""Create-only commits of processes that race for the same keys.

`python commit_races.py PACKAGE CLASS OPTIONS NAME ROUNDS` is one racing process: it has an upload ready for each key,
waits for a line on its standard input, commits them all, and prints the numbers of those that it won as JSON.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from offload_hooks.errors import ObjectExistsError


def race_of_processes(
    driver: type, options: dict[str, str], names: Iterable[str], rounds: int
) -> dict[str, list[int]]:
    """Which of the keys `d0/k` to `d<rounds - 1>/k` each process got, by the processes' names."""
    # The package, not the module: by it the driver is imported as its users do.
    arguments = [driver.__module__.rpartition(".")[0], driver.__name__, json.dumps(options)]
    command = [sys.executable, str(Path(__file__)), *arguments]
    racers = {
        name: subprocess.Popen(
            [*command, name, str(rounds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in names
    }
    for racer in racers.values():
        assert racer.stdout.readline() == "ready\n"
    for racer in racers.values():
        racer.stdin.write("go\n")
        racer.stdin.flush()
    return {name: json.loads(racer.communicate(timeout=120)[0]) for name, racer in racers.items()}


def main(package: str, name_of_class: str, options: str, name: str, rounds: str) -> None:
    """One racing process."""
    driver = getattr(importlib.import_module(package), name_of_class)(**json.loads(options))
    ready = []
    for i in range(int(rounds)):
        upload = driver.begin_data(f"d{i}/k", f"type/{name}", {"who": name})
        ready.append((upload, [driver.write_block(upload, 1, 0, name.encode() * 1000)]))
    print("ready", flush=True)
    sys.stdin.readline()
    won = []
    for i, (upload, receipts) in enumerate(ready):
        try:
            driver.commit_data(upload, receipts, True)
            won.append(i)
        except ObjectExistsError:
            assert driver.abort_data(upload)
    if hasattr(driver, "close"):  # which a driver may have
        driver.close()
    print(json.dumps(won))


if __name__ == "__main__":
    main(*sys.argv[1:])
