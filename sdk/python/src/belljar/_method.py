"""What a method of the API is: where it is called, what it takes, what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Q, A]):
    path: str
    takes: type[Q]
    answers: type[A]


class Unary(Method[Q, A]):
    """One message, one answer."""


class Download(Method[Q, A]):
    """One message, many answers."""


class Upload(Method[Q, A]):
    """Many messages, one answer."""


class Both(Method[Q, A]):
    """Many messages, many answers."""
