"""Serves a checkpoint as an OpenAI-compatible endpoint, without keys and rate limits: for local use only."""

from __future__ import annotations

import socket
import sys
from typing import Any

from kernelwright.errors import ConfigError


def run(model: str, host: str, port: int, **options: Any) -> None:
    """Serves until Ctrl-C. `options` go to `inference.engine.Engine`. Raises `ConfigError` for an address in use."""
    import uvicorn

    from kernelwright.inference import load_engine
    from kernelwright.serve.app import make_app, served_name
    from kernelwright.serve.worker import GenerationWorker

    listening = _listen(host, port)
    name = served_name(model)
    worker = GenerationWorker(load_engine(model, **options))
    config = uvicorn.Config(make_app(worker, name), log_level="warning", timeout_graceful_shutdown=3)

    class Server(uvicorn.Server):
        """Prints its address once it listens."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            shown = f"[{host}]" if ":" in host else host
            print(f"serving {name} at http://{shown}:{listening.getsockname()[1]}/v1", flush=True)

    try:
        Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        worker.close()
        listening.close()
    print("stopped", file=sys.stderr)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise ConfigError(
            f"{host}:{port} cannot be listened on: {error.strerror}", hint="give another --host or --port"
        ) from error
    return listening
