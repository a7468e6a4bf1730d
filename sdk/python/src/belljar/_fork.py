"""What has to be settled before gRPC is imported.

Until Python 3.10, `subprocess` forks in the way that gRPC prepares itself for, and what it does then in the child ended
some children before they became the program. Nothing here forks without that, so gRPC is told not to. Whoever does fork
and speaks to a server from both sides can set the variable.
"""

from __future__ import annotations

import os
import sys

if sys.version_info < (3, 10):
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
