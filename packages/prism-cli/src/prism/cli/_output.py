"""One prompt, answered on stdout: as text (print mode) or as events (JSON mode)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, Protocol

import anyio
from anyio import CancelScope

from prism.cli._host import Host, UsageProblem
from prism.cli._main import EXIT_FAILED, EXIT_USAGE, complain
from prism.cli._signals import OUTPUT_GRACE_SECONDS, exit_status, watch_signals
from prism.cli._streams import Output, output_status
from prism.core import (
    AgentEvent,
    ErrorInfo,
    EventEnvelope,
    MessageDelta,
    Session,
    TextBlock,
    Warned,
    encode_ascii,
    error_info,
)

_ERROR_LINE: Final = b'{"type":"error","error":%b}\n'


class Presenter(Protocol):
    """Shows the events of a run."""

    def show(self, event: AgentEvent) -> bool:
        """Write what there is to write; false when the caller has to `drain` the output."""
        ...

    def finish(self) -> None:
        """The run is over, however it ended."""
        ...

    def fail(self, error: ErrorInfo) -> bool:
        """Say on stdout why the run failed; false if that belongs on stderr."""
        ...


class PrintPresenter:
    """The assistant's text as it comes, and nothing else.

    A terminal gets a line feed after it, unless the text ends in one. Warnings go to stderr.
    """

    def __init__(
        self, output: Output, *, fd: int, encoding: str, redact: Callable[[str], str]
    ) -> None:
        self._output = output
        self._redact = redact
        self._encoding = encoding
        self._terminal = os.isatty(fd)
        self._last = ""

    def show(self, event: AgentEvent) -> bool:
        """Write a delta's text."""
        if isinstance(event, Warned):
            complain(self._redact(f"warning: {event.message}"))
            return True
        if not isinstance(event, MessageDelta) or not isinstance(event.content, TextBlock):
            return True
        text = event.content.text
        if not text:
            return True
        self._last = text
        return self._output.put(text.encode(self._encoding, "replace"))

    def finish(self) -> None:
        """Put the terminal's next prompt on a line of its own."""
        if self._terminal and self._last and not self._last.endswith("\n"):
            self._output.put(b"\n")

    def fail(self, error: ErrorInfo) -> bool:
        """Stdout holds the answer alone."""
        _ = error
        return False


class JsonPresenter:
    """One event a line, in ASCII."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def show(self, event: AgentEvent) -> bool:
        """Write an event's line."""
        envelope = EventEnvelope(session_id=event.session_id, run_id=event.run_id, event=event)
        return self._output.put(encode_ascii(envelope) + b"\n")

    def finish(self) -> None:
        """Every line is whole already."""

    def fail(self, error: ErrorInfo) -> bool:
        """Write the last line."""
        self._output.put(_ERROR_LINE % encode_ascii(error))
        return True


async def answer(host: Host, prompt: str, *, out: int, encoding: str) -> int:
    """Answer one prompt on the descriptor *out*; the exit status."""
    output = Output(out)
    presenter: Presenter = (
        JsonPresenter(output)
        if host.options.mode == "json"
        else PrintPresenter(output, fd=out, encoding=encoding, redact=host.redact)
    )
    try:
        return await OnePrompt(host, presenter, output, prompt).run()
    finally:
        output.close()


class OnePrompt:
    """One run, from the session's opening to its last line."""

    def __init__(self, host: Host, presenter: Presenter, output: Output, prompt: str) -> None:
        self._host = host
        self._presenter = presenter
        self._output = output
        self._prompt = prompt
        self._session: Session | None = None
        self._scope = CancelScope()
        self._signal: int | None = None
        self._error: Exception | None = None

    async def run(self) -> int:
        """Run it; the exit status."""
        async with anyio.create_task_group() as group:

            def on_signal(signum: int) -> None:
                self._on_signal(signum)
                group.start_soon(self._abandon_output)

            await group.start(watch_signals, on_signal)
            with self._scope:
                await self._answer()
            await self._close()
            self._report()
            await self._output.drain()
            group.cancel_scope.cancel()
        if self._signal is not None:
            return exit_status(self._signal)
        if self._output.closed:
            return output_status(self._output)
        if isinstance(self._error, UsageProblem):
            return EXIT_USAGE
        return EXIT_FAILED if self._error is not None else 0

    def _on_signal(self, signum: int) -> None:
        self._signal = signum
        if self._session is None:
            self._scope.cancel()
        else:
            self._session.abort("interrupted")

    async def _abandon_output(self) -> None:
        await anyio.sleep(OUTPUT_GRACE_SECONDS)
        self._output.abandon()

    async def _answer(self) -> None:
        output = self._output
        try:
            session = await self._host.open_session(self._host.options.session)
            options = dict(self._host.run_options)
            if self._host.model is not None:
                options["model"] = self._host.model
            async with session.stream(self._prompt, **options) as events:
                self._session = session
                async for event in events:
                    if not self._presenter.show(event):
                        await output.drain()
                    if output.closed:
                        session.abort("nobody reads the answer")
        except Exception as error:  # noqa: BLE001 - the command's one boundary
            self._error = error
        finally:
            self._presenter.finish()

    async def _close(self) -> None:
        try:
            if self._session is not None:
                await self._session.aclose()
            await self._host.aclose()
        except Exception as error:  # noqa: BLE001 - the command's one boundary
            self._error = self._error or error

    def _report(self) -> None:
        error = self._error
        if error is None or self._output.closed:
            return
        shown = self._presenter.fail(error_info(error, redact=self._host.redact))
        if not shown or isinstance(error, UsageProblem):
            self._host.complain(error)
