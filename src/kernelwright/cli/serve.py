"""The verb `kernelwright serve`: a checkpoint as an OpenAI-compatible endpoint."""

from __future__ import annotations

from typing import Annotated

import typer


def serve(
    model: Annotated[str, typer.Option(help="Folder of a checkpoint, or starter: the bundled one.")] = "starter",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: a free one.")] = 8000,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    rows: Annotated[int | None, typer.Option(min=1, max=4096, help="Batch size: answers computed at once.")] = None,
) -> None:
    """Serve a small model as an OpenAI-compatible endpoint: chat completions, completions, streaming, logprobs.

    Prints the address on stdout once it answers requests. Ctrl-C ends it.
    """
    from kernelwright.serve import run

    run(model, host, port, device=device, rows=rows)
