#!/usr/bin/env bash
# Runs a command at the edge of an internet of its own: a network namespace whose only link leads to another one with a
# resolver and web servers in it. Nothing in it is real, and nothing leaves it.
#
#   world.sh PYTHON COMMAND…
set -euo pipefail
if [ "${BELLJAR_TEST_WORLD:-}" != inside ]; then
  BELLJAR_TEST_WORLD=inside exec unshare --net -- "$0" "$@"
fi
python=$1; shift
ip link set lo up
coproc WORLD { exec unshare --net -- sh -c 'echo made; exec cat'; }
read -r _ <&"${WORLD[0]}"
there() { nsenter --target "$WORLD_PID" --net -- "$@"; }
ip link add edge type veth peer name uplink netns "$WORLD_PID"
ip address add 11.0.0.1/24 dev edge
ip link set edge up
there ip link set lo up
for address in 11.0.0.10 11.0.0.11 11.0.0.53; do there ip address add "$address/24" dev uplink; done
there ip link set uplink up
ready=$(mktemp)
nsenter --target "$WORLD_PID" --net -- "$python" "$(dirname "$0")/servers.py" "$ready" &
servers=$!
trap 'kill $servers $WORLD_PID 2>/dev/null || true; rm -f "$ready"' EXIT
for _ in $(seq 1200); do [ -s "$ready" ] && break; sleep 0.05; done
"$@"
