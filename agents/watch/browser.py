"""The browser's face: a page whose parts are made here, and fetched again by the page every two seconds."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shlex
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jinja2
from markupsafe import Markup
from PIL import Image
from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.routing import Map, Rule
from werkzeug.serving import WSGIRequestHandler, make_server, select_address_family
from werkzeug.wrappers import Request, Response
from werkzeug.wsgi import wrap_file

from async_wrappers.agents.experiment.metrics import name_in
from async_wrappers.agents.timing import duration
from async_wrappers.agents.watch import charts
from async_wrappers.agents.watch.checked_values import clean
from async_wrappers.agents.watch.curves import panels_of, rates_of, scalars_of, times_of
from async_wrappers.agents.watch.last_shown import read_picture
from async_wrappers.agents.watch.watched_run import WatchedRun
from async_wrappers.agents.watch.watcher import Overview, Watcher

_RULES = Map(
    [
        Rule("/", endpoint="page", methods=["GET"]),
        Rule("/run/<key>", endpoint="page", methods=["GET"]),
        Rule("/run/<key>/picture", endpoint="picture", methods=["GET"]),
        Rule("/run/<key>/video", endpoint="video", methods=["GET"]),
    ]
)
# Nothing is taken from elsewhere, and nothing is sent there. The page's own script and style have the nonce, and what
# stands in a file of a run has none.
_POLICY = (
    "default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; img-src 'self' data:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MOST_OPEN = 64  # connections
_SILENCE = 10.0  # seconds that a browser may neither ask nor read
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Start = Callable[..., Any]


class Page:
    """Answers a browser; a WSGI application.

    Args:
        watcher: Reads what is shown.
        trusted: Names of this machine that a request may be for; others come from another site's page, which could
            read along. Empty for all.
    """

    def __init__(self, watcher: Watcher, trusted: Iterable[str] = ()) -> None:
        self._watcher, self._trusted = watcher, list(trusted)
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(Path(__file__).parent),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals.update(charts=charts, duration=duration, key_of=key_of, name_in=name_in)
        environment.filters.update(short=charts.short, gigabytes=lambda size: f"{size / 2**30:.1f} GB")
        environment.filters.update(clean=clean, quoted=lambda path: clean(shlex.quote(str(path))))
        self._shell, self._parts = (
            environment.get_template("page.html.jinja"),
            environment.get_template("parts.html.jinja"),
        )

    def __call__(self, environ: dict[str, Any], start_response: Start) -> Iterable[bytes]:
        """Answer a request."""
        request, nonce = Request(environ), secrets.token_urlsafe(16)
        environ["watch.nonce"] = nonce
        try:
            if self._trusted and _name_in(environ.get("HTTP_HOST", "")) not in self._trusted:
                raise NotFound("watch answers this machine alone: open it by the address that it has printed")
            endpoint, values = _RULES.bind_to_environ(environ).match()
            response: Any = getattr(self, f"_{endpoint}")(request, **values)
        except HTTPException as error:
            response = error.get_response(environ)
        except Exception as error:  # a page that shows why is better than none
            response = Response(clean(f"{type(error).__name__}: {error}"), 500, mimetype="text/plain")
        response.headers["Content-Security-Policy"] = _POLICY.format(nonce)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Content-Type-Options"] = "nosniff"
        answered: Iterable[bytes] = response(environ, start_response)
        return answered

    def _page(self, request: Request, key: str = "") -> Response:
        overview = self._watcher.read()
        run = self._run(overview, key) if key else overview.only
        parts = self.parts(overview, run)
        if "parts" in request.args:
            return Response(json.dumps(parts), mimetype="application/json")
        title = "watch" if run is None else run.name
        html = self._shell.render(title=title, parts=parts, nonce=request.environ["watch.nonce"])
        return Response(html, mimetype="text/html")

    def _picture(self, request: Request, key: str) -> Response:
        run = self._run(self._watcher.read(), key)
        if run.picture is None:
            raise NotFound(f"{run.name} shows no picture")
        file = io.BytesIO()
        Image.fromarray(read_picture(run.folder, run.picture)).save(file, "png", compress_level=1)
        return Response(file.getvalue(), mimetype="image/png")

    def _video(self, request: Request, key: str) -> Response:
        run = self._run(self._watcher.read(), key)
        if run.video is None:
            raise NotFound(f"{run.name} has no video")
        file = run.folder.open(run.video.name)
        response = Response(wrap_file(request.environ, file), mimetype="video/mp4", direct_passthrough=True)
        try:
            size = response.content_length = os.fstat(file.fileno()).st_size
            return response.make_conditional(request.environ, accept_ranges=True, complete_length=size)
        except HTTPException:
            file.close()
            raise

    def _run(self, overview: Overview, key: str) -> WatchedRun:
        for run in overview.runs:
            if key_of(run.directory) == key:
                return run
        raise NotFound("this run is not watched any more: go back to the list")

    def parts(self, overview: Overview, run: WatchedRun | None) -> dict[str, Markup]:
        """Return the parts of a page as HTML, by their names; empty ones are not shown.

        Args:
            overview: What is known.
            run: The run that is shown; None for the list of all.
        """
        made: Any = self._parts.module
        shown = {
            "bar": made.bar(overview, run, overview.only is not None),
            "problems": made.problems(overview.sentences(run)),
        }
        if run is None:
            begun = [each for each in overview.runs if each.recorded.lines]
            shown["sweeps"] = made.sweeps(overview.sweeps)
            shown["recordings"] = made.recordings(overview.recordings)
            shown["returns"] = made.panels("Return of an episode", panels_of(begun) if begun else [])
            shown["runs"] = made.runs(overview)
        else:
            shown["head"] = made.head(run, overview.when)
            shown["game"] = made.game(run)
            shown["returns"] = made.panels("Return of an episode", panels_of([run]))
            shown["live"] = "" if run.live is None else made.live(run.live)
            shown["rates"] = made.panels("Rates", rates_of(run), small=True)
            shown["times"] = made.times(times_of(run))
            shown["updates"] = made.panels("Updates", scalars_of(run), small=True)
            shown["episodes"] = made.episodes(run)
            shown["hosts"] = made.hosts(run.hosts)
            shown["results"] = made.results(run)
            shown["log"] = made.log(run.log)
        shown["machine"] = made.machine(
            overview.machine, None if run is None else overview.processes.get(run.directory)
        )
        return {name: Markup(html).strip() for name, html in shown.items()}


def key_of(directory: Path) -> str:
    """Return a run's name in addresses, which stays when others come and go."""
    return hashlib.blake2b(os.fsencode(os.path.realpath(directory)), digest_size=8).hexdigest()


def _name_in(host: str) -> str | None:
    """Return the name, or the address, of a request's host, without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


class _Quiet(WSGIRequestHandler):
    """Prints no line for each request."""

    def log(self, type: str, message: str, *args: Any) -> None:
        """Print nothing; a browser that goes away is no error."""


class PageServer:
    """Serves the page.

    Args:
        watcher: Reads what is shown.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.

    Raises:
        OSError: It cannot be listened on.

    Attributes:
        address: Of the page.
    """

    def __init__(self, watcher: Watcher, host: str, port: int) -> None:
        self._socket = socket.socket(select_address_family(host, port), socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise
        port = self._socket.getsockname()[1]
        page = Page(watcher, LOOPBACK if host in LOOPBACK else ())
        server: Any = make_server(host, port, page, threaded=True, request_handler=_Quiet, fd=self._socket.fileno())
        # A thread that outlives the server can end the process by an abort, so each is waited for.
        server.daemon_threads, server.verify_request = False, self._admit
        self._server = server
        self._open: list[socket.socket] = []
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def _admit(self, connection: socket.socket, address: Any) -> bool:
        """Admit a connection, of very many in the place of the oldest one, and bound how long it may be silent."""
        self._open = [each for each in self._open if each.fileno() >= 0]  # those that are not closed
        for oldest in self._open[: 1 - _MOST_OPEN]:
            _hang_up(oldest)
        connection.settimeout(_SILENCE)
        self._open.append(connection)
        return True

    def serve(self) -> None:
        """Answer until the process is interrupted, or `close` is called."""
        try:
            # That of Werkzeug would wait for the connections before they are ended here.
            HTTPServer.serve_forever(self._server)
        finally:
            for each in self._open:
                _hang_up(each)
            self._server.server_close()
            self._socket.close()

    def close(self) -> None:
        """End `serve`, from another thread."""
        self._server.shutdown()


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)
