# Functions of labs: hosts in the network namespaces $RUN-1, $RUN-2, ..., each with a daemon; sourced after lib.sh by
# netns-lab and subnet-lab. Each of these defines usage, and start_daemon SIDE.

NODES=2
CONFIG=
COMMAND=
KEEP=
BIN=
DOWN=
EXTRA=()
UNDERLAY_MTU=9000
COMMAND_GROUP=
READY=
CONFIGURED=()
LAB_SCRIPT=scripts/${0##*/}

# value OPTION VALUE...: sets VALUE; fails without a value.
value() {
    [ $# -ge 2 ] || die "$1 needs a value; see $LAB_SCRIPT --help"
    VALUE=$2
}

# parse_common OPTION...: an option of all labs; sets USED to its number of words.
parse_common() {
    USED=2
    case $1 in
        --nodes) value "$@" && NODES=$VALUE ;;
        --config) value "$@" && CONFIG=$VALUE ;;
        --cmd) value "$@" && COMMAND=$VALUE ;;
        --bin) value "$@" && BIN=$VALUE ;;
        --down) value "$@" && DOWN=$VALUE ;;
        --keep) KEEP=yes && USED=1 ;;
        -h | --help) usage && exit 0 ;;
        --) EXTRA=("${@:2}") && USED=$# ;;
        *) die "unknown option $1; see $LAB_SCRIPT --help" ;;
    esac
}

# check_common MOST: checks the options of all labs; MOST is the largest number of hosts.
check_common() {
    case $NODES in
        '' | *[!0-9]* | ????*) die "--nodes takes a whole number from 2 to $1" ;;
    esac
    { [ "$NODES" -ge 2 ] && [ "$NODES" -le "$1" ]; } \
        || die "--nodes takes a whole number from 2 to $1"
    [ -z "$CONFIG" ] || [ -r "$CONFIG" ] || die "cannot read $CONFIG"
    [ -z "$BIN" ] || { [ -x "$BIN/ibtapd" ] && [ -x "$BIN/ibtap" ]; } \
        || die "there is no ibtapd or no ibtap in $BIN"
    [ -n "$COMMAND$KEEP" ] || [ -t 0 ] \
        || die "use --cmd COMMAND or --keep: there is no terminal for a shell"
}

# The namespaces of a lab.
namespaces_of() { # ID
    # ip prints an error while another namespace is being deleted.
    ip netns list 2>/dev/null | cut -d' ' -f1 | grep -x "$1-[a-z0-9]*" || true
}

# processes_in NAMESPACE: those that the lab of this script has started, or all for --down. ip compares the numbers of
# namespaces. On Linux 6.18, ip has listed a process of another namespace while namespaces came and went.
processes_in() {
    local pid
    for pid in $(ip netns pids "$1" 2>/dev/null); do
        [ -z "$DOWN" ] && ! grep -qsz "^IBTAP_LAB=$RUN\$" "/proc/$pid/environ" || echo "$pid"
    done
}

end_namespace() { # NAMESPACE: with its processes
    local pids end=$((SECONDS + 3))
    pids=$(processes_in "$1")
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill $pids 2>/dev/null
    while [ -n "$(processes_in "$1")" ] && [ "$SECONDS" -lt "$end" ]; do
        sleep 0.1
    done
    pids=$(processes_in "$1")
    # shellcheck disable=SC2086
    [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
    ip netns del "$1"
}

take_down() { # ID
    local namespace found=
    case $1 in
        ibt | ibt*[!0-9]*) die "$1 is not the ID of a lab" ;;
        ibt*) ;;
        *) die "$1 is not the ID of a lab" ;;
    esac
    set +e
    for namespace in $(namespaces_of "$1"); do
        found=yes
        end_namespace "$namespace"
    done
    rm -rf "${TMPDIR:-/tmp}/$1".??????
    [ -n "$found" ] || die "there is no lab $1; \"ip netns\" lists the namespaces of labs"
}

# Like clean_up, and ends processes that the command has left.
clean_up_lab() {
    local status=$? namespace pid
    set +e
    trap '' INT TERM HUP
    [ -z "$COMMAND_GROUP" ] || kill -- "-$COMMAND_GROUP" 2>/dev/null
    # The daemons' logs do not explain why a command failed.
    [ -z "$READY" ] || rm -f "$SCRATCH"/*.log
    for pid in "${PIDS[@]}"; do
        end_process "$pid"
    done
    for namespace in "${NAMESPACES[@]}"; do
        end_namespace "$namespace" 2>/dev/null
    done
    clean_up "$status"
}

make_host() { # SIDE
    NAMESPACES+=("$RUN-$1")
    ip netns add "$RUN-$1"
    ip -n "$RUN-$1" link set lo up
}

# connect SIDE PORT: eth0 of a host, and its other end in the middle namespace.
connect() {
    # Without -n, Linux 6.1 refuses the name if this namespace has an eth0.
    ip -n "$RUN-$1" link add name eth0 mtu "$UNDERLAY_MTU" type veth \
        peer name "$2" netns "$RUN-$MIDDLE" mtu "$UNDERLAY_MTU"
    bring_up "$1" eth0
    ip -n "$RUN-$MIDDLE" link set "$2" up
}

# bring_up SIDE INTERFACE: without duplicate address detection, its link-local address is usable at once.
bring_up() {
    in_host "$1" sh -c "echo 0 >/proc/sys/net/ipv6/conf/$2/accept_dad"
    ip -n "$RUN-$1" link set "$2" up
}

make_bridged() {
    local i
    MIDDLE=switch
    make_host "$MIDDLE"
    ip -n "$RUN-$MIDDLE" link add br0 mtu "$UNDERLAY_MTU" type bridge mcast_snooping 0
    ip -n "$RUN-$MIDDLE" link set br0 up
    for i in $(seq "$NODES"); do
        make_host "$i"
        connect "$i" "port$i"
        ip -n "$RUN-$MIDDLE" link set "port$i" master br0
        ip -n "$RUN-$i" address add "10.8.0.$i/24" dev eth0
    done
}

# make_config SIDE: the configuration of a host, from that of --config.
make_config() {
    sed "s/{n}/$1/g" "$CONFIG" >"$SCRATCH/$1.toml"
}

# configure SIDE: ib0 of a host, if its configuration has ib0.
configure() {
    wait_for 20 "answer from the daemon of host $1" "$BIN/ibtap" --socket "$SCRATCH/$1.sock" show
    ip -n "$RUN-$1" link show ib0 >/dev/null 2>&1 || return 0
    ip -n "$RUN-$1" address add "10.9.0.$1/24" dev ib0
    ip -n "$RUN-$1" address add "fd09::$1/64" dev ib0 nodad
    ip -n "$RUN-$1" link set ib0 up
    CONFIGURED+=("$1")
}

# Waits until all hosts answer host 1.
await_pings() {
    local i
    [ "${CONFIGURED[0]:-}" = 1 ] || return 0
    for i in "${CONFIGURED[@]}"; do
        wait_for 20 "answer from host $i" in_host 1 ping -c 1 -W 1 "10.9.0.$i"
    done
}

export_names() {
    local i
    export LAB=$RUN NODES PATH="$BIN:$PATH"
    for i in $(seq "$NODES"); do
        export "NODE$i=$RUN-$i" "SOCKET$i=$SCRATCH/$i.sock"
        COMMAND=${COMMAND//"{$i}"/$RUN-$i}
    done
}

# Its status becomes the script's. A separate process group can be ended as a whole; in the background, signals to
# this script take effect at once.
run_command() {
    local status=0
    setsid bash -c "$COMMAND" <&0 &
    COMMAND_GROUP=$!
    wait "$COMMAND_GROUP" || status=$?
    return "$status"
}

print_usage_of_kept_lab() {
    cat <<TEXT

The lab $RUN stays, with $NODES hosts. Logs and control sockets are in $SCRATCH.
  enter host 1:    ip netns exec $RUN-1 bash
  ask its daemon:  $BIN/ibtap --socket $SCRATCH/1.sock show
  remove it all:   $LAB_SCRIPT --down $RUN
TEXT
}

# take_down_if_asked: ends the script after --down.
take_down_if_asked() {
    need_root
    [ -n "$DOWN" ] || return 0
    take_down "$DOWN"
    exit 0
}

# begin_lab: builds the programs, chooses the lab's name, and cleans up at the script's end.
begin_lab() {
    need_tools ip=iproute2 ping=iputils-ping setsid=util-linux
    need_tun
    need_namespaces
    if [ -z "$BIN" ]; then
        need_rust
        say "building a release (a few minutes the first time)"
        cargo build --release --manifest-path "$ROOT/Cargo.toml" -p ibtap -p tools
        BIN=$TARGET/release
    fi
    BIN=$(cd "$BIN" && pwd)
    # A kept lab may have this name.
    while [ -n "$(namespaces_of "$RUN")" ]; do
        RUN="ibt$$$RANDOM"
    done
    export IBTAP_LAB=$RUN
    make_scratch
    clean_up_always
    trap clean_up_lab EXIT
}

# start_daemons: on all hosts, and waits until they reach each other.
start_daemons() {
    local i
    for i in $(seq "$NODES"); do start_daemon "$i"; done
    for i in $(seq "$NODES"); do configure "$i"; done
    await_pings
}

# use_lab: runs the command, opens a shell, or keeps the lab; ends the script.
use_lab() {
    local status=0
    READY=yes
    export_names
    if [ -n "$COMMAND" ]; then
        run_command || status=$?
    elif [ -z "$KEEP" ]; then
        say "a shell on host 1 of $NODES; leave it to remove the lab"
        in_host 1 "${SHELL:-bash}" || status=$?
    fi
    if [ -n "$KEEP" ]; then
        trap - EXIT HUP INT TERM
        print_usage_of_kept_lab
    fi
    exit "$status"
}
