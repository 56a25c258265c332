# Guests as processes of the host; sourced by main.sh.
# The folder $CACHE/run/NAME has the state of a guest, and is the guest's /control: processes (supervisor, qemu),
# console output, commands and their results.

# Time limit for booting with systemd, which takes 30 s on an idle processor.
SYSTEMD_LIMIT=300

guest_folder() {
    echo "$CACHE/run/$1"
}

# The supervisor of a guest from before a reboot has a number that another process may have now.
guest_runs() {
    local pid='' began=''
    { read -r pid began <"$CACHE/run/$1/supervisor"; } 2>/dev/null || return 1
    began "$pid"
    [ -n "$BEGAN" ] && [ "$BEGAN" = "$began" ]
}

# began PID: sets BEGAN to the start time of the process: field 22 of proc_pid_stat(5). Empty if there is none.
began() {
    local stat=''
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || true
    set -- ${stat##*) }
    BEGAN=${20:-}
}

# boot_guest NAME OPTIONS: see rxe-guest and ib-guest.
boot_guest() {
    make_image
    start_guest "$@"
}

start_guest() {
    local name=$1 netns='' owner=$PPID life=3600 limit=60 memory=512 cpus=1 mtu='' verbose=''
    local priority=0 nets=0 boot='' disk='' net mac device arguments=() ports=() encapsulation=6 pkeys=0xffff,0x8001,0x8002
    [[ $name =~ ^[A-Za-z0-9_-]+$ ]] || die "a guest's name has letters, digits, - and _ only"
    shift
    while [ $# -gt 0 ]; do
        case $1 in
            --rxe)
                boot+=$'modprobe -a rdma_rxe ib_uverbs rdma_ucm; rdma link add rxe0 type rxe netdev eth0\n'
                shift
                continue
                ;;
            --systemd)
                disk=$DISK limit=$SYSTEMD_LIMIT
                shift
                continue
                ;;
            --verbose)
                verbose=1
                shift
                continue
                ;;
        esac
        [ $# -ge 2 ] || die "$1 needs a value"
        case $1 in
            --tap)
                mac=$(guest_mac "$name" "$nets")
                arguments+=(-netdev "tap,id=n$nets,ifname=$2,script=no,downscript=no"
                    -device "virtio-net-pci,netdev=n$nets,mac=$mac,romfile=")
                nets=$((nets + 1))
                device=$((${#arguments[@]} - 1))
                ;;
            --mac) set_mac "$2" ;;
            --lid)
                set_mac "$(lid_mac "$2")"
                ports+=("$((nets - 1)) $2")
                ;;
            --encap) encapsulation=$2 ;;
            --pkeys) pkeys=$2 ;;
            --addr) boot="ip addr add $2 dev eth$((nets - 1))"$'\n'$boot ;;
            --netns) netns=$2 ;;
            --mtu) mtu=$2 ;;
            --share)
                arguments+=(-virtfs "local,path=$2,mount_tag=host,security_model=none,multidevs=remap")
                # The guest keeps what it has read: with cache=mmap, each start of a program reads the program again, and
                # takes five times as long.
                boot="mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose host /host"$'\n'$boot
                ;;
            --memory) memory=$2 ;;
            --cpus) cpus=$2 ;;
            --owner) owner=$2 ;;
            --life) life=$2 ;;
            --limit) limit=$2 ;;
            *) die "unknown option $1; see ${0##*/} --help" ;;
        esac
        shift 2
    done
    [ "$nets" = 0 ] || need_root
    if [ -n "$disk" ]; then
        need_disk
        # A snapshot: writes are lost with the guest.
        arguments+=(-drive "file=$disk,if=virtio,format=raw,snapshot=on")
    else
        # A kernel that panics ends the guest.
        arguments+=(-no-reboot)
    fi
    if [ ${#ports[@]} -gt 0 ]; then
        need_infiniband
        boot+=$(infiniband_ports "$encapsulation" "$pkeys" "${ports[@]}")
    fi
    ! guest_runs "$name" || die "a guest called $name runs already"
    local folder
    folder=$(guest_folder "$name")
    rm -rf "$folder"
    mkdir -p "$folder"
    {
        echo "hostname $name"
        echo "ip link set lo up"
        for ((net = 0; net < nets; net++)); do
            # Addresses are usable at once, and the guest solicits no router.
            echo "echo 0 >/proc/sys/net/ipv6/conf/eth$net/accept_dad"
            echo "echo 0 >/proc/sys/net/ipv6/conf/eth$net/router_solicitations"
            echo "ip link set eth$net up ${mtu:+mtu $mtu}"
        done
        printf '%s' "$boot"
    } >"$folder/boot"
    mkfifo "$folder/bell"
    # norandmaps: the emulator translates a program's code again at each random address, which makes the start of a
    # program three times as long. init_on_alloc=0: clearing new memory takes a third of the time of a stream over a veth.
    arguments=(
        qemu-system-x86_64 -name "$name" -machine q35 -accel "$(guest_accelerator)" -cpu "$(guest_processor)"
        -smp "$cpus" -m "$memory" -nodefaults -display none
        -kernel "$KERNEL" -initrd "$INITRAMFS"
        -append "console=ttyS0 quiet loglevel=5 panic=-1 net.ifnames=0 mitigations=off random.trust_cpu=on cryptomgr.notests norandmaps init_on_alloc=0 no_timer_check${disk:+ disk systemd.show_status=0}"
        -serial "file:$folder/console"
        -chardev "pipe,id=bell,path=$folder/bell" -serial chardev:bell
        -virtfs "local,path=$folder,mount_tag=control,security_model=none,multidevs=remap"
        -device virtio-rng-pci
        "${arguments[@]}"
    )
    # The tests of a guest with systemd restart services under traffic, and finish last.
    [ -z "$disk" ] || priority=-10
    [ -z "$netns" ] || arguments=(ip netns exec "$netns" "${arguments[@]}")
    supervise "$folder" "$owner" "$life" "$priority" "${arguments[@]}"
    await_boot "$name" "$limit" "$verbose"
}

# KVM if a guest has booted with it: in a nested machine, /dev/kvm alone proves nothing.
guest_accelerator() {
    if [ -z "${TRY_KVM:-}" ] && [ "$(cat "$CACHE/accelerator")" != kvm ]; then
        echo tcg,thread=multi
    else
        echo kvm
    fi
}

# The emulator copies single bytes for `rep movsb`. Kernel and C library copy so if the processor has fast string
# operations (ERMS, FSRM), and with larger units otherwise.
guest_processor() {
    if [ "$(guest_accelerator)" = kvm ]; then echo max; else echo max,-erms,-fsrm; fi
}

# find_accelerator: runs once for an image.
find_accelerator() {
    local answer=tcg
    if [ -r /dev/kvm ] && [ -w /dev/kvm ] \
        && (TRY_KVM=1 start_guest "$RUN-kvm" --owner $$ --limit 15) >/dev/null 2>&1; then
        answer=kvm
    fi
    stop_guest "$RUN-kvm"
    rm -rf "$(guest_folder "$RUN-kvm")"
    echo "$answer" >"$CACHE/accelerator"
}

# guest_mac NAME NUMBER: locally administered, QEMU's prefix.
guest_mac() {
    local sum
    sum=$(cksum <<<"$1" | cut -d' ' -f1)
    printf '52:54:00:%02x:%02x:%02x\n' $((sum >> 8 & 255)) $((sum & 255)) "$2"
}

# set_mac MAC: of the last Ethernet; part of start_guest, with its variables.
set_mac() {
    arguments[device]="virtio-net-pci,netdev=n$((nets - 1)),mac=$1,romfile="
}

# supervise FOLDER OWNER LIFE NICE COMMAND...: runs QEMU in the background. QEMU ends with the owner and with the
# supervisor.
supervise() {
    setsid bash -c "$(declare -f began)"'
        folder=$1 owner=$2 end=$((SECONDS + $3)) nice=$4
        shift 4
        [ "$nice" = 0 ] || {
            renice -n "$nice" $$
            # With autogroups, the nice value of a session counts (sched(7)).
            [ ! -w /proc/$$/autogroup ] || echo "$nice" >/proc/$$/autogroup
        } >/dev/null
        began "$owner"
        owned=$BEGAN
        setpriv --pdeathsig KILL "$@" </dev/null >"$folder/qemu" 2>&1 &
        guest=$!
        trap "kill -KILL $guest 2>/dev/null; wait" EXIT
        trap "exit 0" TERM INT HUP
        exec {never}<> <(:)
        while kill -0 "$guest" 2>/dev/null && [ "$SECONDS" -lt "$end" ]; do
            read -r -t 0.5 -u "$never"
            began "$owner"
            [ "$owner" = none ] || [ "$BEGAN" = "$owned" ] || {
                rm -rf "$folder"
                break
            }
        done
    ' supervisor "$@" </dev/null >/dev/null 2>&1 9>&- &
    # setsid keeps the number of a process in the background of a script.
    began $!
    echo "$! $BEGAN" >"$1/supervisor"
    disown
}

# reboot_guest NAME: a guest with systemd keeps its disk.
reboot_guest() {
    local folder
    guest_runs "$1" || die "no guest called $1 runs"
    folder=$(guest_folder "$1")
    rm "$folder/ready"
    echo 'systemctl reboot' >"$folder/reboot.cmd"
    ring "$folder" "run reboot"
    await_boot "$1" "$SYSTEMD_LIMIT" ''
}

# await_boot NAME LIMIT VERBOSE
await_boot() {
    local name=$1 end=$((SECONDS + $2)) folder viewer=''
    folder=$(guest_folder "$name")
    if [ -n "$3" ]; then
        tail -n +1 -F "$folder/console" >&2 2>/dev/null &
        viewer=$!
    fi
    until [ -e "$folder/ready" ]; do
        if ! guest_runs "$name"; then
            guest_failed "$folder" "the guest $name ended before it was ready"
        elif [ "$SECONDS" -ge "$end" ]; then
            stop_guest "$name" keep
            guest_failed "$folder" "the guest $name was not ready in $2 s"
        fi
        nap 0.05
    done
    end_viewer
}

# end_viewer: part of await_boot, with its variables.
end_viewer() {
    [ -z "$viewer" ] || kill "$viewer" 2>/dev/null || true
}

guest_failed() {
    end_viewer
    tail -n 20 "$1/qemu" "$1/console" >&2
    die "$2; its console is $1/console"
}

# stop_guest NAME [keep]: kills a guest. The folder of a guest that has ended without this function stays: its
# console shows the reason.
stop_guest() {
    local folder pid began
    folder=$(guest_folder "$1")
    guest_runs "$1" || return 0
    read -r pid began <"$folder/supervisor"
    kill "$pid" 2>/dev/null || true
    while began "$pid"; [ "$BEGAN" = "$began" ]; do
        nap 0.02
    done
    [ "${2:-}" = keep ] || rm -rf "$folder"
}

list_guests() {
    local folder
    for folder in "$CACHE"/run/*/; do
        folder=${folder%/}
        ! guest_runs "${folder##*/}" || echo "${folder##*/}"
    done
}

# nap SECONDS: sleeps without a process.
nap() {
    [ -n "${NEVER:-}" ] || exec {NEVER}<> <(:)
    read -r -t "$1" -u "$NEVER" || true
}
