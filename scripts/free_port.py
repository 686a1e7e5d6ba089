"""Prints a port of 127.0.0.1 that is free: the one asked for, or else the first from 8000 on."""

import socket
import sys


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        # As servers do: connections of an earlier server that are still closing don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def choose(arguments: list[str]) -> int:
    """The port, or an exit that says why there is none."""
    if not arguments:
        for port in range(8000, 8100):
            if is_free(port):
                return port
        sys.exit("Every port from 8000 to 8099 is taken; choose one with --port.")
    port = int(arguments[0]) if arguments[0].isdecimal() else 0
    if not 0 < port < 65536:
        sys.exit(f"{arguments[0]!r} is not a port; give a number from 1 to 65535.")
    if not is_free(port):
        sys.exit(f"Port {port} of 127.0.0.1 is taken or not allowed; choose another with --port.")
    return port


if __name__ == "__main__":
    print(choose(sys.argv[1:]))
