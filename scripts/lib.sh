# Functions for the scripts of this folder; sourced, never run.
# Names of created namespaces and files contain the process id, and are removed by that name.

set -euo pipefail

# No program runs before the first function: tests of guests call these scripts some thousand times.
ROOT=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)
RUN="ibt$$"
# Debian's su keeps the PATH of a user, without the programs of the administrator.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# Not the folder of cargo's configuration.
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
[[ $TARGET = /* ]] || TARGET=$(realpath -m "$TARGET")
export CARGO_TARGET_DIR=$TARGET
# Root may read a checkout that belongs to another user (git-config(1), safe.directory).
[ -n "${GIT_CONFIG_COUNT:-}" ] \
    || export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=$ROOT

# Tests of guests mostly wait for a free guest; fewer threads would leave guests idle.
GUEST_TEST_THREADS=64

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

say() {
    printf '\n== %s\n' "$*"
}

# step NAME COMMAND...: prints the name, runs the command, prints the duration.
step() {
    local name=$1 start=$SECONDS
    shift
    say "$name"
    "$@"
    printf '%s: %d s\n' "$name" $((SECONDS - start))
}

# need_root [WHAT]: ends the script unless root runs it. WHAT needs root: "network namespaces" if not given.
need_root() {
    [ "$(id -u)" = 0 ] || die "${1:-network namespaces} need root: run it as root, or with sudo"
}

# Under sudo, uses the caller's Rust if root has none.
need_rust() {
    local home
    home=$(getent passwd "${SUDO_USER:-root}" | cut -d: -f6)
    if ! command -v cargo >/dev/null; then
        if [ -x "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/cargo" ]; then
            PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH"
        elif [ -x "$home/.cargo/bin/cargo" ]; then
            PATH="$home/.cargo/bin:$PATH"
            export CARGO_HOME="$home/.cargo" RUSTUP_HOME="$home/.rustup"
        fi
    fi
    local least version
    least=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$ROOT/Cargo.toml")
    command -v cargo >/dev/null || die "cargo is missing: install Rust $least or later first (https://rustup.rs)"
    version=$(rustc --version | cut -d' ' -f2)
    printf '%s\n%s\n' "$least" "$version" | sort -C -V \
        || die "rustc is $version, ibtap needs $least or later: rustup update stable"
    # The linker.
    need_tools cc=build-essential
}

# revision: the git revision for --version; "-dirty" marks changes that are not committed.
revision() {
    git -C "$ROOT" describe --always --dirty --exclude '*' --abbrev=12 2>/dev/null || echo unknown
}

# build_release: all programs to $TARGET/release, with the revision.
build_release() {
    need_rust
    (cd "$ROOT" && IBTAP_REVISION=$(revision) cargo build --release --workspace --bins)
}

# complete_build: builds of all tests are faster in few large units, and without data for incremental builds. A developer
# who builds incrementally keeps that, because other settings would build everything again.
complete_build() {
    [ -n "$(ls -A "$TARGET/debug/incremental" 2>/dev/null)" ] \
        || export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=2
}

# make_guides FOLDER: pages of docs/ for users as man pages of section 7, ibtap-NAME(7). Needs lowdown.
make_guides() {
    local page name title
    command -v lowdown >/dev/null || {
        echo "lowdown is not installed: no man pages of section 7" >&2
        return
    }
    mkdir -p "$1"
    for page in "$ROOT"/docs/*.md; do
        name=$(basename "$page" .md)
        case $name in
            # Pages for developers.
            README | architecture | conformance | dependencies | performance | reliability | vnic-management) continue ;;
        esac
        title=$(sed -n '1s/^# *//p' "$page")
        {
            printf '# NAME\n\nibtap-%s - %s\n\n# DESCRIPTION\n' "$name" "$title"
            tail -n +2 "$page"
        } | lowdown -s -tman --nroff-nolinks -M section=7 -M "title=IBTAP-${name^^}" >"$1/ibtap-$name.7"
    done
}

# without_services COMMAND...: installed packages start no daemon (Debian policy, section 9.3.3.1), now and at the next
# boot.
without_services() (
    policy=/usr/sbin/policy-rc.d mark='made by ibtap'
    before=$(enabled_units)
    # That of a killed script is used again.
    if [ ! -e "$policy" ] || grep -q "$mark" "$policy"; then
        trap 'rm -f "$policy"' EXIT
        install -m 755 /dev/null "$policy"
        printf '#!/bin/sh\n# %s\nexit 101\n' "$mark" >"$policy"
    fi
    status=0
    "$@" || status=$?
    enabled_units | LC_ALL=C comm -13 <(printf '%s\n' "$before") - | xargs -r systemctl disable || true
    exit "$status"
)

# enabled_units: the units that start at boot, sorted.
enabled_units() {
    find /etc/systemd/system -type l -path '*.wants/*' -printf '%f\n' 2>/dev/null | LC_ALL=C sort -u
}

# need_tools PROGRAM=PACKAGE...: installs the packages of missing programs.
need_tools() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null \
        || die "missing: ${missing[*]}; there is no apt-get here: install them by hand"
    [ "$(id -u)" = 0 ] || die "missing: ${missing[*]}; install them as root: apt-get install ${missing[*]}"
    say "installing ${missing[*]}"
    apt_install "${missing[@]}" || die "apt-get could not install ${missing[*]}; see $APT_LOG"
    rm -f "$APT_LOG"
}

# apt_install PACKAGE|OPTION...: writes to APT_LOG, which stays after a failure.
APT_LOG="${TMPDIR:-/tmp}/$RUN-apt.log"
apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    # Only root writes to /run.
    { flock 9 && update_packages \
        && without_services apt-get -o DPkg::Lock::Timeout=300 install -q -y --no-install-recommends "$@"; } \
        >"$APT_LOG" 2>&1 9>/run/ibtap-apt.lock
}

# update_packages: apt-get update, which does not wait for another one, as apt-daily after a boot. A source that fails
# does no harm if others have the packages.
update_packages() {
    local end=$((SECONDS + 300)) said
    while ! said=$(LC_ALL=C apt-get update -q 2>&1); do
        printf '%s\n' "$said"
        [[ $said == *"Could not get lock"* ]] && [ "$SECONDS" -lt "$end" ] || return 0
        sleep 3
    done
}

# unpack FOLDER PACKAGE...: unpacks packages, and what they need and the machine does not have, into
# $TARGET/unpacked/FOLDER: packages that conflict with others or would take over the machine. Again after the machine's
# packages have changed.
unpack() {
    local name=$TARGET/unpacked/$1 root=$TARGET/unpacked/$1.new deb
    shift
    mkdir -p "$TARGET/unpacked"
    {
        flock 8
        [ ! "$name/complete" -nt /var/lib/dpkg/status ] || return 0
        say "unpacking $*"
        rm -rf "$root" "$root.debs"
        # The folders that are links in an installed system.
        mkdir -p "$root.debs/partial" "$root"/usr/{bin,lib,lib64,sbin}
        ln -s usr/{bin,lib,lib64,sbin} "$root"
        if ! apt_install --download-only --reinstall -o "Dir::Cache::archives=$root.debs" "$@"; then
            [ -e "$name/complete" ] || die "apt-get could not download $*; see $APT_LOG"
            say "apt-get could not download $*: the former packages stay; see $APT_LOG"
            return 0
        fi
        for deb in "$root.debs"/*.deb; do
            dpkg-deb --fsys-tarfile "$deb" | tar -x --keep-directory-symlink -C "$root"
        done
        touch "$root/complete"
        rm -rf "$name" "$root.debs" "$APT_LOG"
        mv "$root" "$name"
    } 8>"$TARGET/unpacked/lock"
}

need_basic_tools() {
    need_tools cc=build-essential ip=iproute2 ss=iproute2 ping=iputils-ping iperf3=iperf3 \
        python3=python3 "$@"
}

need_test_tools() {
    need_basic_tools arping=iputils-arping ndisc6=ndisc6 ethtool=ethtool tshark=tshark \
        tcpdump=tcpdump sysctl=procps setpriv=util-linux bridge=iproute2 dnsmasq=dnsmasq-base \
        udhcpc=udhcpc dhclient=isc-dhcp-client smcroutectl=smcroute nft=nftables ip6tables=iptables \
        wg=wireguard-tools wireguard-go=wireguard-go python3=python3 ibsim=ibsim-utils opensm=opensm \
        saquery=infiniband-diags tmux=tmux promtool=prometheus \
        prometheus-node-exporter=prometheus-node-exporter busybox=busybox podman=podman crun=crun \
        /usr/lib/podman/netavark=netavark podman-compose=podman-compose lxc-start=lxc qemu-system-x86_64=qemu-system-x86 \
        virt-xml-validate=libvirt-clients libvirtd=libvirt-daemon \
        virt-qemu-run=libvirt-daemon-driver-qemu xmllint=libxml2-utils \
        /usr/lib/cni/macvlan=containernetworking-plugins mmdebstrap=mmdebstrap lintian=lintian lowdown=lowdown \
        dpkg-shlibdeps=dpkg-dev "$@"
    unpack managers dbus systemd network-manager ifupdown keepalived netplan.io
    # Installed, it would change the firewall of the machine.
    unpack docker docker.io docker-compose
    # Conflicts with ifupdown.
    unpack ifupdown2 ifupdown2
}

need_tun() {
    [ -c /dev/net/tun ] || { mkdir -p /dev/net && mknod /dev/net/tun c 10 200 2>/dev/null; } || true
    (exec 3<>/dev/net/tun) 2>/dev/null \
        || die "/dev/net/tun is unusable: modprobe tun, or give the container --device /dev/net/tun"
}

need_namespaces() {
    local answer
    answer=$(ip netns add "$RUN-probe" 2>&1) \
        || die "cannot create a network namespace ($answer); a container needs --privileged"
    ip netns del "$RUN-probe"
}

# Clean-up ends the processes and removes the namespaces of this run, by id.
PIDS=()
NAMESPACES=()
SCRATCH=

make_scratch() {
    SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/$RUN.XXXXXX")
}

# end_process PID: sends SIGTERM, and SIGKILL after three seconds.
end_process() {
    local pid kept=()
    for pid in "${PIDS[@]}"; do
        [ "$pid" = "$1" ] || kept+=("$pid")
    done
    PIDS=("${kept[@]}")
    kill "$1" 2>/dev/null || true
    for _ in $(seq 30); do
        # Its number may be another process's after this.
        kill -0 "$1" 2>/dev/null || { wait "$1" 2>/dev/null || true; return 0; }
        sleep 0.1
    done
    kill -KILL "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

show_logs() {
    local log
    for log in "$SCRATCH"/*.log; do
        [ ! -s "$log" ] || { printf '\n-- %s\n' "${log##*/}" && tail -n 20 "$log"; } >&2
    done
}

# clean_up [STATUS]: ends the script with this status, or with that of the last command.
clean_up() {
    local status=${1:-$?} pid namespace
    trap - EXIT ERR
    # A second Ctrl-C would interrupt the clean-up.
    trap '' INT TERM HUP
    set +e
    case $status in
        0 | 129 | 130 | 143) ;;
        *) show_logs ;;
    esac
    for pid in "${PIDS[@]}"; do
        end_process "$pid"
    done
    for namespace in "${NAMESPACES[@]}"; do
        ip netns del "$namespace" 2>/dev/null
    done
    [ -z "$SCRATCH" ] || rm -rf "$SCRATCH"
    exit "$status"
}

clean_up_always() {
    trap clean_up EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

# make_hosts MTU: two namespaces $RUN-a and $RUN-b, joined by a veth named eth0 in both.
make_hosts() {
    local side
    for side in a b; do
        NAMESPACES+=("$RUN-$side")
        ip netns add "$RUN-$side"
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

# start_in_host SIDE LOG COMMAND...: runs the command in the background until clean_up or end_process, and sets
# STARTED to its process id (ip executes the command in the same process).
start_in_host() {
    local side=$1 log=$2
    shift 2
    ip netns exec "$RUN-$side" "$@" >"$log" 2>&1 &
    STARTED=$!
    PIDS+=("$STARTED")
}

# wait_for SECONDS WHAT COMMAND...: waits until the command succeeds; fails if a started process ends.
wait_for() {
    local end=$((SECONDS + $1)) what=$2 pid
    shift 2
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || die "timed out waiting for $what"
        for pid in "${PIDS[@]}"; do
            kill -0 "$pid" 2>/dev/null || die "cannot wait for $what: a required program has ended"
        done
        sleep 0.1
    done
}

# lid_mac LID: the MAC of a port whose Ethernet has the link-local address fe80::99:ff:fe00:LID. This address is the
# port's GID.
lid_mac() {
    [[ $1 =~ ^(0x[0-9a-fA-F]+|[0-9]+)$ ]] && [ $(($1)) -ge 1 ] && [ $(($1)) -lt $((0xc000)) ] \
        || die "$1 is no LID: a LID is a number from 1 to 0xbfff"
    printf '02:99:00:00:%02x:%02x\n' $(($1 >> 8)) $(($1 & 255))
}
