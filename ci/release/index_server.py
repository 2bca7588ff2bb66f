"""Serves an index on loopback, as HTML or also as JSON, with faults on demand; and runs a ``pip`` that sees it only."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

JSON = "application/vnd.pypi.simple.v1+json"
HTML = "application/vnd.pypi.simple.v1+html"

Answer = tuple[int, str, bytes]
"""An answer is a status, a content type and a body."""


class Server:
    """Serves a folder; ``faults`` maps the end of a path to a function that changes its answer."""

    def __init__(self, folder: Path, *, speaks_json: bool) -> None:
        self.folder, self.speaks_json = folder, speaks_json
        self.faults: dict[str, Callable[[Answer], Answer]] = {}
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    def answer(self, path: str, accept: str) -> Answer:
        """Answer as a static server with content negotiation does."""
        file = self.folder / path.lstrip("/")
        kind = "application/octet-stream"
        if path.endswith("/"):
            kind = JSON if self.speaks_json and JSON in accept else HTML
            file /= "index.json" if kind == JSON else "index.html"
        if not file.is_file():
            return HTTPStatus.NOT_FOUND, "text/plain", b"not found"
        answer: Answer = (HTTPStatus.OK, kind, file.read_bytes())
        for end, change in self.faults.items():
            if path.endswith(end):
                answer = change(answer)
        self.asked.append((path, answer[1]))
        return answer


@contextmanager
def serving(folder: Path, *, speaks_json: bool = True) -> Iterator[Server]:
    """Serve ``folder`` at ``url`` on a free port of the loopback interface."""
    server = Server(folder, speaks_json=speaks_json)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = server.answer(self.path.partition("?")[0], self.headers.get("Accept", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}/"
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


class Environment:
    """A fresh virtual environment, installed into by the ``pip`` of the running Python."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        (self.site,) = folder.glob("lib/python3*/site-packages")

    def pip(self, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pip with the index at ``url`` and no other, no cache and no configuration."""
        options = ("--isolated", "--no-cache-dir", "--disable-pip-version-check", "--no-input")
        command = [sys.executable, "-m", "pip", f"--python={self.python}", *options, *arguments]
        index = ("--index-url", url, "--retries=0", "--timeout=10") if arguments[0] == "install" else ()
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        kept = {name: value for name, value in kept.items() if not name.startswith(("PIP_", "PYTHON"))}
        kept["PIP_CONFIG_FILE"] = os.devnull
        return subprocess.run([*command, *index], env=kept, capture_output=True, text=True, check=False)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run([self.python, *arguments], env=kept, capture_output=True, text=True, check=False)

    def files(self) -> dict[str, bytes]:
        """Read everything in site-packages but byte code."""
        found = (path for path in self.site.rglob("*") if path.is_file() and path.suffix != ".pyc")
        return {path.relative_to(self.site).as_posix(): path.read_bytes() for path in found}
