"""`manage.py a2a_grpc`: serves the agents over gRPC."""

import asyncio
import signal
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

try:
    from a2a_django.bindings import grpc_server
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("grpc"):
        raise
    INSTALLED = False
else:
    INSTALLED = True


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT; several may share a port."""

    help = "Serves this site's agents over gRPC, with health and reflection services."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--bind", default="0.0.0.0:50051", help="host:port or unix:path; port 0 takes a free one")
        parser.add_argument("--tls-cert", metavar="FILE", help="the server's certificate chain, PEM")
        parser.add_argument("--tls-key", metavar="FILE", help="its private key, PEM")
        parser.add_argument("--tls-client-ca", metavar="FILE", help="only clients with a certificate of this authority")
        parser.add_argument("--grace", type=float, default=10, help="seconds that running calls have to end in")

    def handle(self, *args: Any, **options: Any) -> None:
        if not INSTALLED:
            raise CommandError("gRPC is not installed; pip install 'a2a-django[grpc]'")
        tls = _tls(options["tls_cert"], options["tls_key"], options["tls_client_ca"])
        asyncio.run(self._serve(options["bind"], tls, max(options["grace"], 0)))

    async def _serve(self, address: str, tls: "grpc_server.Tls | None", grace: float) -> None:
        stop, server = _signals(), grpc_server.Server()
        try:
            port = server.listen(address, tls)
        except RuntimeError:
            raise CommandError(f"Can't listen on {address}; is the address right and free?") from None
        await server.start()
        shown = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
        self.stdout.write(f"Serving gRPC on {shown} ({'TLS' if tls else 'without TLS'})")
        self.stdout.flush()
        await stop.wait()
        self.stdout.write(f"Stopping; calls have {grace:g} s to end in")
        await server.stop(grace)


def _tls(certificate: str | None, key: str | None, client_ca: str | None) -> "grpc_server.Tls | None":
    if not (certificate and key):
        if certificate or key or client_ca:
            raise CommandError("TLS needs both --tls-cert and --tls-key")
        return None
    return grpc_server.Tls(_read(certificate), _read(key), _read(client_ca) if client_ca else None)


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise CommandError(f"Can't read {file}: {error.strerror}") from None


def _signals() -> asyncio.Event:
    """Is set when the process is asked to stop."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
