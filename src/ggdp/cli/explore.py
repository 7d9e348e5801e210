# SPDX-License-Identifier: Apache-2.0
"""`ggdp explore`: the explorer, a page with knobs, served to a browser on this machine."""

import contextlib
import signal
import socket
import subprocess
import sys
from importlib.resources import as_file, files
from typing import Annotated

import typer

from ggdp.cli import options, output

HOST = "127.0.0.1"  # loopback: the page is not served to other machines

Port = Annotated[
    int,
    typer.Option(
        "--port",
        help="The port to listen on, in [1024, 65535].",
        parser=options.whole("--port", least=1024, most=65535),
        metavar="WHOLE",
    ),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address and open no browser.")]


def explore(port: Port = 2718, no_browser: NoBrowser = False) -> None:
    """Open an app in the browser to try settings.

    It shows certified epsilon, noises of equal privacy, and what an attacker can achieve.

    Runs until it is interrupted. Listens on this machine only. Needs marimo: pip install "ggdp[explore]".

    Example: ggdp explore --port 8080 --no-browser
    """
    output.need("marimo", "matplotlib")
    _refuse_a_taken(port)
    typer.echo(f"The explorer is at http://{HOST}:{port} until you press Ctrl-C")
    sys.stdout.flush()
    for ending in ("SIGTERM", "SIGHUP"):  # so that the server ends with this command
        if hasattr(signal, ending):
            signal.signal(getattr(signal, ending), lambda *_: sys.exit(0))
    with as_file(files("ggdp.reporting.explorer").joinpath("app.py")) as page:
        command = [sys.executable, "-m", "marimo", "--quiet", "run", str(page), "--no-token", "--no-sandbox"]
        command += ["--host", HOST, "--port", str(port), *(["--headless"] if no_browser else [])]
        # In a group of its own it does not hear of Ctrl-C, at which it would print what went through it.
        server = subprocess.Popen(command, process_group=0)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                server.wait()
        finally:
            server.terminate()
            server.wait()


def _refuse_a_taken(port: int) -> None:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            raise ValueError(
                f"--port must be free, got {port}, on which another program listens; try another one"
            ) from None
