# Shared by the scripts of this folder; sourced, never run.
# Everything made here carries the process id in its name and is removed by that name.

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
RUN="ibt$$"
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

say() {
    printf '\n== %s\n' "$*"
}

need_root() {
    [ "$(id -u)" = 0 ] || die "network namespaces need root: run it with sudo"
}

need_rust() {
    [ -x "${HOME:-/root}/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"
    command -v cargo >/dev/null || die "cargo is missing: install Rust (rustup, stable) first"
}

# need_tools PROGRAM=PACKAGE... installs the packages of programs that are missing.
need_tools() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null \
        || die "missing: ${missing[*]}; there is no apt-get here, so install them by hand"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -q -y --no-install-recommends "${missing[@]}"; } \
        >"${TMPDIR:-/tmp}/$RUN-apt.log" 2>&1 \
        || die "apt-get could not install ${missing[*]}; see ${TMPDIR:-/tmp}/$RUN-apt.log"
    rm -f "${TMPDIR:-/tmp}/$RUN-apt.log"
}

need_basic_tools() {
    need_tools cc=build-essential ip=iproute2 ping=iputils-ping iperf3=iperf3 python3=python3 "$@"
}

need_test_tools() {
    need_basic_tools arping=iputils-arping ndisc6=ndisc6 ethtool=ethtool tshark=tshark \
        tcpdump=tcpdump sysctl=procps setpriv=util-linux "$@"
}

need_tun() {
    [ -c /dev/net/tun ] || { mkdir -p /dev/net && mknod /dev/net/tun c 10 200 2>/dev/null; } || true
    (exec 3<>/dev/net/tun) 2>/dev/null \
        || die "/dev/net/tun is unusable: modprobe tun, or give the container --device /dev/net/tun"
}

# Cleaning up: processes and namespaces that this run made, by id.
PIDS=()
NAMESPACES=()
SCRATCH=

make_scratch() {
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/$RUN.XXXXXX")
}

clean_up() {
    local status=$? pid namespace
    trap - EXIT INT TERM
    set +e
    for pid in "${PIDS[@]}"; do
        kill "$pid" 2>/dev/null
    done
    for pid in "${PIDS[@]}"; do
        for _ in $(seq 30); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    for namespace in "${NAMESPACES[@]}"; do
        ip netns del "$namespace" 2>/dev/null
    done
    [ -z "$SCRATCH" ] || rm -rf "$SCRATCH"
    exit "$status"
}

clean_up_always() {
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# make_hosts MTU: two namespaces $RUN-a and $RUN-b, joined by a veth called eth0 in each.
make_hosts() {
    local side
    for side in a b; do
        ip netns add "$RUN-$side"
        NAMESPACES+=("$RUN-$side")
        ip -n "$RUN-$side" link set lo up
    done
    ip link add name eth0 netns "$RUN-a" mtu "$1" type veth \
        peer name eth0 netns "$RUN-b" mtu "$1"
    for side in a b; do
        ip -n "$RUN-$side" link set eth0 up
    done
}

# in_host SIDE COMMAND...
in_host() {
    local side=$1
    shift
    ip netns exec "$RUN-$side" "$@"
}

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
    local end=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || die "waited in vain for $what"
        sleep 0.1
    done
}
