"""Who is let in: by the SuperLink itself, and through the proxy that stands in front of it."""

import select
import shutil
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import psutil  # type: ignore[import-untyped]
import pytest

from ecgr.config.experiment import load

pytest.importorskip("flwr", reason="the flower extra is not installed")

import httpx
from flwr.supercore.routers.runtime.responses import router as responses
from flwr.supercore.routers.runtime.router import router as runtime
from flwr.superlink.routers.control.router import router as control

from ecgr.flower.fleet import Listed
from ecgr.flower.folders import Deployment, Plan, nginx_config
from ecgr.flower.guard import Guard
from ecgr.flower.keys import make_certificates, make_node_key
from ecgr.flower.local import Supervisor, environment, installed
from ecgr.flower.processes import Service, free_ports, listens

pytestmark = pytest.mark.slow

ROUTES = sorted(
    {str(getattr(route, "path", "")) for router in (control, runtime, responses) for route in router.routes}
)
TRICKS = [
    "/v1/fleet/../control/list-runs",
    "/v1/fleet/%2e%2e/control/list-runs",
    "/v1/fleet/..%2fcontrol/list-runs",
    "/v1/fleet/%252e%252e/control/list-runs",
    "//v1/control/list-runs",
    "/v1/FLEET/../control/list-runs",
    "/v1/control/list-runs?x=/v1/fleet/",
    "/v1/fleet/;/../../control/list-runs",
]


@dataclass(frozen=True)
class Server:
    """A SuperLink with TLS and node authentication, one registered key, and where they are."""

    home: Path
    port: int
    superlink: Service

    @property
    def files(self) -> Path:
        return self.home / "server"

    @property
    def welcome(self) -> list[str]:
        """The options of the SuperNode that is registered."""
        key = str(self.home / "site-0" / "node")
        return ["--root-certificates", str(self.files / "ca.crt"), "--auth-supernode-private-key", key]

    def trusting(self, certificate: Path | None = None) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(certificate or self.files / "ca.crt"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    chosen = load("quickstart", {"partition.clients": 1})
    out = tmp_path_factory.mktemp("server")
    supervisor = Supervisor.prepare(Plan(chosen, [Listed("site-0")], Guard(), out), print)
    try:
        supervisor.start_superlink()
        supervisor.register()
        yield Server(supervisor.home, supervisor.port, supervisor.superlink)
    finally:
        for service in (*supervisor.supernodes, supervisor.superlink):
            service.stop()


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[int]:
    """The public port of nginx with the configuration that init writes."""
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed (apt-get install nginx)")
    (port,) = free_ports(1)
    path = server.files / "nginx.conf"
    path.write_bytes(nginx_config(server.files, Deployment("localhost", port=port), server.port))
    # pytest's directories are for their owner alone, and nginx's workers are somebody else if root starts it
    command = [nginx, "-c", str(path), "-g", "daemon off; user root;"]
    service = Service("nginx", command, environment(server.files), server.files / "nginx.out")
    with running(service):
        until(lambda: listens(port), service)
        yield port


@contextmanager
def running(*services: Service) -> Iterator[None]:
    """Start services, and stop them after the block."""
    try:
        for service in services:
            service.start()
        yield
    finally:
        for service in services:
            service.stop()


def until(condition: Callable[[], bool], service: Service, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert service.alive, service.log.read_text()
        assert time.monotonic() < deadline, service.log.read_text()
        time.sleep(0.1)


def supernode(server: Server, name: str, *arguments: str, port: int | None = None) -> Service:
    (own,) = free_ports(1)
    place = server.home / name
    command = [*installed("flower-supernode"), "--superlink", f"127.0.0.1:{port or server.port}"]
    command += ["--host", "127.0.0.1", "--port", str(own), "--max-retries", "0", *arguments]
    return Service(name, command, environment(place), place / "log")


def test_strangers_are_refused(server: Server, tmp_path: Path) -> None:
    make_certificates(tmp_path / "other")
    stranger = make_node_key(tmp_path / "stranger").with_suffix("")
    trusted, key = server.welcome[:2], server.welcome[2:]
    attempts = {
        "an unregistered key": [*trusted, "--auth-supernode-private-key", str(stranger)],
        "no key": trusted,
        "a wrong CA": ["--root-certificates", str(tmp_path / "other" / "ca.crt"), *key],
        "plain HTTP": ["--insecure"],
    }
    services = {name: supernode(server, name, *arguments) for name, arguments in attempts.items()}
    with running(*services.values()):
        deadline = time.monotonic() + 120
        while any(service.alive for service in services.values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for name, service in services.items():
            assert service.process is not None
            assert service.process.poll() not in {None, 0}, f"{name} was let in"
            assert "SuperNode ID" not in service.log.read_text(), name
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"http://127.0.0.1:{server.port}/", trust_env=False)
    with pytest.raises(httpx.ConnectError):
        trusting_another = server.trusting(tmp_path / "other" / "ca.crt")
        httpx.get(f"https://127.0.0.1:{server.port}/", verify=trusting_another, trust_env=False)


def test_only_what_sites_need_passes_the_proxy(server: Server, proxy: int) -> None:
    assert len(ROUTES) > 40
    with httpx.Client(base_url=f"https://127.0.0.1:{proxy}", verify=server.trusting(), trust_env=False) as client:
        for path in [*ROUTES, "/", "/health", "/docs", "/openapi.json"]:
            for method in ("GET", "POST"):
                assert client.request(method, path).status_code in {403, 404}, f"{method} {path}"
        assert client.post("/v1/fleet/pull-messages").status_code not in {403, 404, 502}
    for path in TRICKS:
        assert raw_status(proxy, server, path) in {400, 401, 403, 404}, path
    assert raw_status(server.port, server, "/v1/control/list-runs") == 200, "without the proxy it is open"


def raw_status(port: int, server: Server, path: str) -> int:
    """The status for a path that no client library tidies up."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        server.trusting().wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/protobuf\r\n"
        tls.sendall(f"{head}Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        return int(tls.recv(4096).split()[1])


def test_a_registered_site_gets_in_through_the_proxy(server: Server, proxy: int) -> None:
    service = supernode(server, "welcome", *server.welcome, port=proxy)
    with running(service):
        until(lambda: "SuperNode ID" in service.log.read_text(), service)


class Tunnel(socketserver.BaseRequestHandler):
    """An HTTP proxy that knows CONNECT alone."""

    asked: ClassVar[list[str]] = []

    def handle(self) -> None:
        method, target, _ = self.request.makefile("rb", buffering=0).readline().decode().split()
        self.asked.append(f"{method} {target}")
        while self.request.recv(1) != b"\n" or self.request.recv(2, socket.MSG_PEEK) != b"\r\n":
            pass
        self.request.recv(2)
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port))) as upstream:
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            ends = {self.request: upstream, upstream: self.request}
            while True:
                for end in select.select([*ends], [], [])[0]:
                    if not (data := end.recv(65536)):
                        return
                    ends[end].sendall(data)


def test_a_site_gets_in_through_an_http_proxy(server: Server) -> None:
    """Which sees the name of the server, and TLS: the certificate that the site checks is still the server's own."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as tunnel:
        tunnel.daemon_threads = True
        threading.Thread(target=tunnel.serve_forever, daemon=True).start()
        service = supernode(server, "behind-a-proxy", *server.welcome, "--superlink", f"localhost:{server.port}")
        proxied = {"HTTPS_PROXY": f"http://127.0.0.1:{tunnel.server_address[1]}", "NO_PROXY": "127.0.0.1"}
        service.environment = {**service.environment, **proxied, "https_proxy": proxied["HTTPS_PROXY"], "no_proxy": ""}
        with running(service):
            until(lambda: "SuperNode ID" in service.log.read_text(), service)
        tunnel.shutdown()
    assert {*Tunnel.asked} == {f"CONNECT localhost:{server.port}"}


@pytest.mark.parametrize("declared", [True, False])
def test_a_huge_body_does_not_reach_the_superlink(server: Server, proxy: int, declared: bool) -> None:
    assert server.superlink.process is not None
    process = psutil.Process(server.superlink.process.pid)
    before, megabyte = process.memory_info().rss, b"x" * 2**20

    def body() -> Iterator[bytes]:
        for _ in range(300):
            yield megabyte

    headers = {"Content-Length": str(300 * 2**20)} if declared else {}
    with httpx.Client(base_url=f"https://127.0.0.1:{proxy}", verify=server.trusting(), trust_env=False) as client:
        try:
            status = client.post("/v1/fleet/push-object", content=body(), headers=headers).status_code
        except httpx.HTTPError:
            status = 413  # nginx hangs up on who goes on sending
    assert status == 413
    assert process.memory_info().rss - before < 20 * 2**20


def test_the_files_of_init_start_a_superlink(tmp_path: Path) -> None:
    from support.commands import ecgr

    done = ecgr("federate", "init", "--server", "localhost", "--clients", "2", "--out", tmp_path / "plan")
    assert done.returncode == 0, done.stderr
    unit = (tmp_path / "plan" / "server" / "ecgr-superlink.service").read_text()
    assert "Restart=always" in unit
    assert "--host 127.0.0.1" in unit
    line = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    (port,) = free_ports(1)
    program, *rest = line.removeprefix("ExecStart=").replace("--port 8000", f"--port {port}").split()
    assert program == "/opt/ecgr/bin/flower-superlink"
    arguments = [str(Path(sys.executable).with_name("flower-superlink")), *rest]
    service = Service("superlink", arguments, environment(tmp_path), tmp_path / "log")
    with running(service):
        until(lambda: listens(port), service)
    secrets = [path for path in (tmp_path / "plan").rglob("*") if path.name in {"node", "server.key"}]
    assert [path.name for path in secrets] == ["server.key"], "a site's key is the site's to make"
    assert all(path.stat().st_mode & 0o077 == 0 for path in secrets)
