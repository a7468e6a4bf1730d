"""Why something failed: the base of all error classes, and how a failed call becomes one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from belljar._generated.api import Problem

# The entry of a failed call's metadata that carries the whole problem.
METADATA_KEY = "belljar-problem-bin"


@dataclass(frozen=True)
class Decision:
    """What a policy answered: `deny` or `block`, by which rule (absent: the default), in whose words."""

    verdict: str
    rule: str | None
    message: str
    digest: str


class BelljarError(Exception):
    """What all errors of this package are. `code` is stable; the text may change.

    message: what failed, with its name. cause: why, empty where the message says it all. remedy: what to do about it.
    decision: what a policy answered, where it is a policy that refuses.
    """

    code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str,
        *,
        cause: str = "",
        remedy: str = "",
        docs: str = "",
        request_id: str = "",
        decision: Decision | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.remedy = remedy
        self.docs = docs
        self.request_id = request_id
        self.decision = decision

    @property
    def rule(self) -> str | None:
        """The rule that refuses, where it is one of a policy."""
        return self.decision.rule if self.decision else None

    def __str__(self) -> str:
        text = self.message
        if self.cause:
            text += f"; caused by: {self.cause}"
        if self.remedy:
            text += f"; hint: {self.remedy}"
        return text


def of_problem(problem: Problem) -> BelljarError:
    """The error that a server's problem stands for. A code that this version does not know is kept in the message."""
    from belljar._generated.codes import BY_CODE, Internal

    kind = BY_CODE.get(problem.code)
    message = problem.message if kind else f"{problem.message} ({problem.code})"
    decision = None
    if problem.HasField("decision"):
        answer = problem.decision
        rule = answer.rule if answer.HasField("rule") else None
        decision = Decision(answer.verdict, rule, answer.message, answer.digest)
    return (kind or Internal)(
        message,
        cause=problem.cause,
        remedy=problem.remedy,
        docs=problem.docs,
        request_id=problem.request_id,
        decision=decision,
    )


def of_call(error: Any) -> BelljarError:
    """The error that a failed gRPC call stands for."""
    import grpc

    from belljar._generated import codes
    from belljar._generated.api import Problem

    for key, value in error.trailing_metadata() or ():
        if key == METADATA_KEY:
            problem = Problem()
            problem.ParseFromString(value)
            return of_problem(problem)
    status, details = error.code(), error.details() or ""
    if status == grpc.StatusCode.UNAVAILABLE:
        return codes.ServerUnreachable(
            "the server does not answer", cause=details, remedy="check the address, and that `belljar serve` runs there"
        )
    if status == grpc.StatusCode.CANCELLED:
        return codes.Interrupted("the request was cancelled", cause=details)
    if status == grpc.StatusCode.DEADLINE_EXCEEDED:
        return codes.TimedOut("the server did not answer in time", cause=details)
    return codes.Internal(f"the call failed with {status.name.lower()}", cause=details)
