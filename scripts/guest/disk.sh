# The disk of guests with systemd; sourced by image.sh. Debian's minimal system, with the kernel modules of all guests.
# The first such guest creates the disk, since others do not need it.

DISK=$CACHE/systemd.ext4
DISK_PACKAGES=(
    dbus ethtool init-system-helpers iperf3 iproute2 iputils-arping iputils-ping kmod netbase netplan.io procps
    systemd systemd-sysv tcpdump udev wireguard-tools
)

# need_disk: one process creates the disk; others wait and find it.
need_disk() {
    local log=$CACHE/systemd.log
    exec 9>"$CACHE/lock"
    flock 9
    if [ ! -s "$DISK" ]; then
        say "making the disk of guests with systemd in $CACHE"
        build_disk >"$log" 2>&1 9>&- || no_guests "$(tail -n 1 "$log"); see $log"
    fi
    exec 9>&-
}

# In a subshell, because need_tools ends its shell on failure. The last line of its output is the reason of a failure.
build_disk() (
    disk=$CACHE/making-disk
    trap 'rm -rf "$disk" "$DISK.new"' EXIT
    rm -rf "$disk"
    need_tools mmdebstrap=mmdebstrap mke2fs=e2fsprogs
    [ "$(id -u)" = 0 ] || die "the disk of guests with systemd needs root"
    mmdebstrap --quiet --variant=minbase --mode=root --include="$(IFS=, && echo "${DISK_PACKAGES[*]}")" \
        --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$disk" || die "mmdebstrap cannot make Debian's minimal system"
    (cd "$disk" && cpio --quiet -idm '*usr/lib/modules/*' <"$INITRAMFS") || die "cpio cannot read $INITRAMFS"
    # Without RDMA devices, because rdma_rxe takes port 4791 in all namespaces.
    rm -rf "$disk"/usr/lib/modules/*/{extra,kernel/drivers/infiniband}
    depmod -b "$disk" "$(ls "$disk/usr/lib/modules")"
    install -m 755 "$ROOT/scripts/guest/serve" "$disk/serve"
    mkdir -p "$disk"/{host,control}
    echo guest >"$disk/etc/hostname"
    echo '127.0.0.1 localhost guest' >"$disk/etc/hosts"
    # Without an id, systemd would take every boot for the first one, and configure all units.
    tr -d - </proc/sys/kernel/random/uuid >"$disk/etc/machine-id"
    # Nobody logs in, and nothing else waits for a terminal or a timer.
    for unit in getty@tty1.service serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer \
        dpkg-db-backup.timer fstrim.timer systemd-timesyncd.service systemd-logind.service proc-sys-fs-binfmt_misc.automount; do
        ln -sf /dev/null "$disk/etc/systemd/system/$unit"
    done
    # systemd runs all generators at each daemon-reload, which takes a second in an emulated guest. These make nothing here.
    mkdir -p "$disk/etc/systemd/system-generators"
    for generator in "$disk"/lib/systemd/system-generators/systemd-*; do
        ln -s /dev/null "$disk/etc/systemd/system-generators/${generator##*/}"
    done
    cat >"$disk/etc/systemd/system/guest.service" <<'UNIT'
[Unit]
Description=Commands of the host
[Service]
Environment=HOME=/root TERM=linux
ExecStart=/bin/bash -c '. /serve; while :; do wait; sleep 1; done'
# A command may stop the network or reboot.
KillMode=process
LimitMEMLOCK=infinity
TasksMax=infinity
[Install]
WantedBy=multi-user.target
UNIT
    mkdir -p "$disk/etc/systemd/system/multi-user.target.wants"
    ln -s ../guest.service "$disk/etc/systemd/system/multi-user.target.wants/guest.service"
    rm -f "$disk/var/cache/apt/"*.bin "$disk/var/lib/apt/lists/"*_* 2>/dev/null
    mke2fs -q -t ext4 -O ^has_journal -E lazy_itable_init=1 -d "$disk" "$DISK.new" 1G \
        || die "mke2fs cannot make the file system"
    mv "$DISK.new" "$DISK"
)
