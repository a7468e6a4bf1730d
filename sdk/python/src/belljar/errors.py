"""Errors: a class for each code of the API, all of them `BelljarError`, and those of commands that `check` refuses."""

from belljar._failure import BelljarError as BelljarError
from belljar._generated.codes import *  # noqa: F403
from belljar._outcomes import CommandCancelled as CommandCancelled
from belljar._outcomes import CommandFailed as CommandFailed
from belljar._outcomes import CommandOutOfMemory as CommandOutOfMemory
from belljar._outcomes import CommandTimedOut as CommandTimedOut
