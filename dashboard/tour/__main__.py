"""``python -m dashboard.tour``: five guided minutes with a simulated server, load, and every page.

It starts its own server and dashboard and ends them. Needs no GPU, no weights, no root.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from dashboard.settings import ADMIN_PORT_DISTANCE
from dashboard.tour.acts import ACTS, Stage
from dashboard.tour.caption import Caption, write
from dashboard.tour.processes import KEYS, TourError, TourProcesses, port_or_free
from dashboard.tour.streams import Traffic

MODEL = "simulated:h100-8b,output=400"
ACT_SECONDS, FAST_SECONDS = 70.0, 4.0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make tour", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="a few seconds for each act")
    parser.add_argument("--port", type=int, default=8000, help="port of the server (%(default)s)")
    parser.add_argument(
        "--dashboard-port", type=int, default=8501, help="port of the dashboard (%(default)s)"
    )
    return parser.parse_args(arguments)


async def _play(processes: TourProcesses, seconds: float) -> None:
    stage = Stage(processes, Traffic(processes.server_url), [])
    try:
        for number, act in enumerate(ACTS, start=1):
            caption = Caption(
                number,
                len(ACTS),
                act.title,
                act.text,
                act.look,
                act.page,
                round(seconds),
                api_key=KEYS["carol"],
            )
            write(processes.caption, caption)
            print(f"\n{number}/{len(ACTS)} {act.title}\n  {act.text}\n  {act.look}", flush=True)
            print(f"  -> {await act.play(stage, seconds)}", flush=True)
    finally:
        await stage.close()


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    with tempfile.TemporaryDirectory(prefix="quire-tour-") as directory:
        server_port = port_or_free(options.port)
        processes = TourProcesses(
            Path(directory),
            MODEL,
            server_port=server_port,
            admin_port=port_or_free(server_port + ADMIN_PORT_DISTANCE),
            dashboard_port=port_or_free(options.dashboard_port),
        )
        try:
            with processes:
                print("Starting a simulated server and the dashboard ...", flush=True)
                processes.start()
                print(f"Open {processes.dashboard_url}/live and watch. Ctrl-C ends the tour.")
                asyncio.run(_play(processes, FAST_SECONDS if options.fast else ACT_SECONDS))
        except TourError as error:
            print(f"tour: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nTour stopped.")
            return 130
    print("\nThat was the tour. Next: make serve, make dashboard (docs/dashboard.md).")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
