# Commands and functions that rxe-guest and ib-guest share; sourced after lib.sh.

. "$ROOT/scripts/guest/image.sh"
. "$ROOT/scripts/guest/machine.sh"
. "$ROOT/scripts/guest/command.sh"

usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

# make_wire NAMESPACE TAP...: a bridge br0 with TAPs for guests.
make_wire() {
    local namespace=$1 tap
    shift
    make_namespace "$namespace"
    # Without snooping the bridge floods multicast, like a plain switch.
    ip -n "$namespace" link add br0 mtu 4500 type bridge mcast_snooping 0
    for tap in "$@"; do
        ip -n "$namespace" tuntap add "$tap" mode tap
        ip -n "$namespace" link set "$tap" mtu 4500 master br0 up
    done
    ip -n "$namespace" link set br0 up
}

make_namespace() {
    ip netns add "$1"
    # Without duplicate address detection, addresses are usable at once.
    ip netns exec "$1" sysctl -q net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0
    ip -n "$1" link set lo up
}

# run_script [OPTIONS] SCRIPT: the script is the last argument.
run_script() {
    local script=${*: -1} status=0
    [ -r "$script" ] || die "cannot read $script"
    trap 'stop_guest "$RUN"' EXIT
    boot_guest "$RUN" --owner $$ "${@:1:$#-1}"
    run_in_guest "$RUN" 3600 "$(cat "$script")" || status=$?
    exit "$status"
}

# guest_command COMMAND ...: a command that both scripts have.
guest_command() {
    local command=$1 name
    shift
    case $command in
        image) make_image "$@" ;;
        boot)
            [ $# -ge 1 ] || die "boot needs the guest's name"
            boot_guest "$@"
            ;;
        exec) exec_in_guest "$@" ;;
        reboot)
            [ $# -eq 1 ] || die "reboot needs the guest's name"
            reboot_guest "$@"
            ;;
        stop) for name in "$@"; do stop_guest "$name"; done ;;
        list) list_guests ;;
        run)
            [ $# -ge 1 ] || die "run needs a script"
            run_script "$@"
            ;;
        help | --help | -h) usage ;;
        *)
            usage >&2
            exit 2
            ;;
    esac
}
