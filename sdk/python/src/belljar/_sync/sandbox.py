# Made from src/belljar/_async/sandbox.py by mirror.py; change that one.
"""One sandbox."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Callable, TypeVar, overload

from typing_extensions import Unpack

from belljar import _packages, _requests
from belljar._administration import Token
from belljar._generated import api, methods
from belljar._generated.codes import InvalidArgument, SandboxNotFound
from belljar._kept import Snapshot
from belljar._models import Explanation, ExposedPort, LayerChange, SandboxInfo, moment
from belljar._offer import OnConnection, OnRequest, Secrets, Tools
from belljar._outcomes import ProcessInfo, Result
from belljar._requests import Command, CommandOptions, Content
from belljar._schema import Tool
from belljar._sync.callbacks import Callbacks
from belljar._sync.connection import Connection
from belljar._sync.files import Files
from belljar._sync.forward import Forward
from belljar._sync.network import Network
from belljar._sync.process import Process

F = TypeVar("F", bound=Callable[..., Any])


class Sandbox:
    """A sealed computer. As a context manager it is destroyed at the end.

    `info` is what was known when it was last asked for; `refresh` asks again.
    """

    def __init__(self, connection: Connection, message: api.Sandbox, *, timeout: float | None = None) -> None:
        self._connection = connection
        self._timeout = timeout
        self.info = SandboxInfo.of(message)
        self.files = Files(connection, self.id)
        self.network = Network(connection, self.id)
        self._callbacks = Callbacks(connection, self.id)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def name(self) -> str | None:
        return self.info.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    # --- commands ---

    def run(
        self,
        command: Command,
        *,
        stdin: Content | None = None,
        output_limit: int | None = None,
        artifacts: bool = False,
        check: bool = False,
        **options: Unpack[CommandOptions],
    ) -> Result:
        """Runs a shell line, or a program with its arguments, to its end.

        A command that fails is a result like any other; with `check` it raises `CommandFailed`. Output is kept up to
        `output_limit` bytes per channel (1 MiB, at most 8 MiB). artifacts: list the files of `/output` that are new.
        """
        message = _requests.command(command, **self._defaults(options))
        return self._run(message, stdin, output_limit, artifacts, check)

    def run_code(
        self,
        code: str,
        language: str,
        *,
        stdin: Content | None = None,
        output_limit: int | None = None,
        artifacts: bool = False,
        check: bool = False,
        **options: Unpack[CommandOptions],
    ) -> Result:
        """Runs a program text: `python`, `javascript` or `bash`."""
        message = _requests.code(code, language, **self._defaults(options))
        return self._run(message, stdin, output_limit, artifacts, check)

    def run_python(
        self,
        code: str,
        *,
        stdin: Content | None = None,
        output_limit: int | None = None,
        artifacts: bool = False,
        check: bool = False,
        **options: Unpack[CommandOptions],
    ) -> Result:
        """Runs Python code."""
        message = _requests.code(code, "python", **self._defaults(options))
        return self._run(message, stdin, output_limit, artifacts, check)

    def _run(
        self, command: api.Command, stdin: Content | None, output_limit: int | None, artifacts: bool, check: bool
    ) -> Result:
        if stdin is not None:
            command.input = _requests.encode(stdin)
        if output_limit is not None:
            command.output_limit = output_limit
        self._callbacks.settle()
        request = api.ExecRequest(
            sandbox=self.id, command=command, idempotency_key=_requests.once(), artifacts=artifacts
        )
        result = Result.of(self._connection.call(methods.EXEC, request, again=True))
        return result.check() if check else result

    def start(
        self,
        command: Command,
        *,
        stdin: bool = False,
        pty: bool | tuple[int, int] | None = None,
        **options: Unpack[CommandOptions],
    ) -> Process:
        """Starts a command and returns at once.

        stdin: keep standard input open for `process.stdin`. pty: a terminal, of 24 rows and 80 columns or as given.
        """
        message = _requests.command(command, **self._defaults(options))
        message.stdin = stdin or bool(pty)
        terminal = _requests.terminal(pty)
        if terminal is not None:
            message.terminal.CopyFrom(terminal)
        self._callbacks.settle()
        request = api.StartProcessRequest(sandbox=self.id, command=message, idempotency_key=_requests.once())
        answer = self._connection.call(methods.START_PROCESS, request, again=True)
        return Process(self._connection, ProcessInfo.of(answer))

    def pip_install(self, names: Iterable[str], *, index_url: str | None = None, timeout: float | None = 300) -> Result:
        """Installs Python packages by name for the sandbox's user, where its network reaches an index.

        `NetworkDenied` names the hosts that are not allowed; `CommandFailed` has what pip said.
        """
        chosen = _packages.checked(names)
        missing = _packages.missing_hosts(self.network.show(), index_url)
        if missing:
            raise _packages.refused(missing)
        return self.run(_packages.command(chosen, index_url), timeout=timeout, check=True)

    def _defaults(self, options: CommandOptions) -> CommandOptions:
        if self._timeout is not None and options.get("timeout") is None:
            return {**options, "timeout": self._timeout}
        return options

    # --- what this process answers for ---

    @overload
    def tool(self, function: F) -> F: ...

    @overload
    def tool(self, *, name: str | None = None, description: str | None = None) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, *, name: str | None = None, description: str | None = None) -> Any:
        """Makes a function of this process callable from inside, where the policy's `tool_allowlist` names it.

        As a decorator, plain or with a name and a description. Type hints become the schema of the arguments; what it
        raises is an error inside. It is answered as long as this object is in use.
        """

        def offer(chosen: F) -> F:
            made = Tool.of(chosen, name, description)
            changed = self._callbacks.offer.copy()
            changed.tools[made.name] = made
            self._callbacks.change(changed)
            return chosen

        return offer if function is None else offer(function)

    @property
    def tools(self) -> list[str]:
        """The names of the tools that this object answers for."""
        return list(self._callbacks.offer.tools)

    def on_connection(self, function: OnConnection) -> OnConnection:
        """Asks `function` about names and connections that no rule names. Also as a decorator."""
        changed = self._callbacks.offer.copy()
        changed.on_connection = function
        self._callbacks.change(changed)
        return function

    def on_request(self, function: OnRequest) -> OnRequest:
        """Shows `function` each HTTP request before it leaves. Also as a decorator."""
        changed = self._callbacks.offer.copy()
        changed.on_request = function
        self._callbacks.change(changed)
        return function

    def serve(
        self,
        *,
        tools: Tools = (),
        on_connection: OnConnection | None = None,
        on_request: OnRequest | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        """Offers all of these at once, and returns when the server knows."""
        changed = self._callbacks.offer.copy()
        changed.add(tools)
        changed.on_connection = on_connection or changed.on_connection
        changed.on_request = on_request or changed.on_request
        changed.secrets.update(secrets or {})
        self._callbacks.change(changed)
        self._callbacks.settle()

    # --- life ---

    def refresh(self) -> SandboxInfo:
        """Asks the server what the sandbox is like now."""
        request = api.GetSandboxRequest(sandbox=self.id)
        return self._update(self._connection.call(methods.GET_SANDBOX, request, again=True))

    def extend(self, *, idle_timeout: float | None = None, lease: float | None = None) -> SandboxInfo:
        """Starts the clocks of the lease anew. Absent: as long as before; 0: for ever."""
        request = api.ExtendSandboxRequest(sandbox=self.id, idle_timeout_secs=idle_timeout, lease_secs=lease)
        return self._update(self._connection.call(methods.EXTEND_SANDBOX, request, again=True))

    def pause(self) -> SandboxInfo:
        """Freezes every process."""
        request = api.PauseSandboxRequest(sandbox=self.id)
        return self._update(self._connection.call(methods.PAUSE_SANDBOX, request, again=True))

    def resume(self) -> SandboxInfo:
        """Lets a paused sandbox go on."""
        request = api.ResumeSandboxRequest(sandbox=self.id)
        return self._update(self._connection.call(methods.RESUME_SANDBOX, request, again=True))

    def snapshot(
        self, *, name: str | None = None, labels: Mapping[str, str] | None = None, paths: Sequence[str] = ()
    ) -> Snapshot:
        """Keeps its files; `client.snapshots.restore` makes new sandboxes with them. Processes are not kept.

        name: one that no other snapshot has. paths: absent `/workspace`, `/home/user` and `/output`.
        """
        request = api.CreateSnapshotRequest(sandbox=self.id, name=name, labels=labels, paths=paths)
        return Snapshot.of(self._connection.call(methods.CREATE_SNAPSHOT, request))

    def explain(self) -> Explanation:
        """What it is, why, and what holds each rule."""
        request = api.ExplainSandboxRequest(sandbox=self.id)
        return Explanation.of(self._connection.call(methods.EXPLAIN_SANDBOX, request, again=True))

    def issue_token(self, *, audience: str | None = None, expires_in: float | None = None) -> Token:
        """A signed token that opens this sandbox and nothing else, for an hour unless `expires_in` says otherwise.

        audience: `api` (the default; used as an API key), `egress` (the explicit proxy) or `preview` (a shown port).
        """
        request = api.IssueTokenRequest(sandbox=self.id, audience=audience, expires_in_secs=expires_in)
        answer = self._connection.call(methods.ISSUE_TOKEN, request)
        return Token(answer.token, moment(answer, "expires_at"))

    def destroy(self) -> None:
        """Destroys the sandbox from any state. Destroying it again is fine."""
        self._callbacks.close()
        request = api.DestroySandboxRequest(sandbox=self.id)
        try:
            self._connection.call(methods.DESTROY_SANDBOX, request, again=True)
        except SandboxNotFound:
            # Its record is gone too.
            return

    def _update(self, message: api.Sandbox) -> SandboxInfo:
        self.info = SandboxInfo.of(message)
        return self.info

    # --- ports ---

    def expose(self, port: int, *, public: bool = False, expires_in: float | None = None) -> ExposedPort:
        """Shows a port over HTTP, to who has the token of the answer or to everybody."""
        request = api.ExposePortRequest(sandbox=self.id, port=port, public=public, expires_in_secs=expires_in)
        return ExposedPort.of(self._connection.call(methods.EXPOSE_PORT, request, again=True))

    def ports(self) -> list[ExposedPort]:
        """The ports that are shown."""
        answer = self._connection.call(methods.LIST_PORTS, api.ListPortsRequest(sandbox=self.id), again=True)
        return [ExposedPort.of(port) for port in answer.ports]

    def hide(self, port: int) -> bool:
        """Shows a port no longer. Whether it was shown."""
        request = api.HidePortRequest(sandbox=self.id, port=port)
        return (self._connection.call(methods.HIDE_PORT, request)).was_shown

    def forward(self, port: int, *, local_port: int = 0) -> Forward:
        """Listens on loopback here and joins each connection to a port inside, shown or not; for any protocol."""
        if not 0 < port < 65536:
            raise InvalidArgument(f"`{port}` is no port", remedy="give 1 to 65535")
        return Forward(self._connection, self.id, port).open(local_port)

    # --- the workspace layer ---

    def diff(self) -> list[LayerChange]:
        """What changed in the workspace layer."""
        answer = self._connection.call(methods.DIFF_LAYER, api.DiffLayerRequest(sandbox=self.id), again=True)
        return [LayerChange.of(change) for change in answer.changes]

    def apply(self) -> list[LayerChange]:
        """Writes the changes of the workspace layer to the directory on the server's host."""
        answer = self._connection.call(methods.APPLY_LAYER, api.ApplyLayerRequest(sandbox=self.id))
        return [LayerChange.of(change) for change in answer.changes]

    def discard(self) -> list[LayerChange]:
        """Throws the changes of the workspace layer away."""
        answer = self._connection.call(methods.DISCARD_LAYER, api.DiscardLayerRequest(sandbox=self.id))
        return [LayerChange.of(change) for change in answer.changes]
