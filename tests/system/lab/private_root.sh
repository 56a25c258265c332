# Makes a mount namespace look like a machine of its own, whose processes are those of a new process namespace, and
# stays until killed. Nothing here changes the machine's files.
#
#     private_root.sh SOCKET GROUP [LAYER...]
#
# /run is empty but for the control socket, so two machines may have namespaces of the same name. /etc, /usr and /var
# are the machine's, and writable. With layers (folders of unpacked packages; the last is on top), the layers lie over
# them, and the machine's network configuration is left out. Without layers, /var/lib is empty. Control groups of the
# machine are below the group GROUP.

set -e
socket=$1 group=$2
shift 2

mount -t tmpfs tmpfs /run
mkdir -p /run/ibtap /run/lock
ln -s "$socket" /run/ibtap/ibtapd.sock

for folder in etc usr var; do
    lower=/$folder
    for layer in "$@"; do
        [ ! -d "$layer/$folder" ] || lower=$layer/$folder:$lower
    done
    mkdir -p "/run/layers/$folder/upper" "/run/layers/$folder/work"
    mount -t overlay overlay "/$folder" \
        -o "lowerdir=$lower,upperdir=/run/layers/$folder/upper,workdir=/run/layers/$folder/work"
done
if [ $# -gt 0 ]; then
    # What the packages' scripts would do.
    ldconfig
    systemd-sysusers 2>/dev/null || true
    [ -s /etc/machine-id ] || dbus-uuidgen --ensure=/etc/machine-id
    id messagebus >/dev/null 2>&1 || useradd --system messagebus
    [ ! -d /usr/share/ifupdown2 ] || chmod +x /usr/share/ifupdown2/__main__.py
    mkdir -p /run/dbus /run/network /run/systemd
    # Debian's own files only.
    rm -rf /etc/NetworkManager/conf.d /etc/NetworkManager/system-connections /etc/keepalived /etc/netplan \
        /etc/network/interfaces.d /etc/network/if-*.d/* /etc/systemd/network
    mkdir -p /etc/NetworkManager/conf.d /etc/NetworkManager/system-connections /etc/keepalived /etc/netplan \
        /etc/network/interfaces.d /etc/systemd/network
    printf 'auto lo\niface lo inet loopback\nsource /etc/network/interfaces.d/*\n' >/etc/network/interfaces
else
    mount -t tmpfs tmpfs /var/lib
fi

# "ip netns exec" has mounted another /sys, without the control groups. A control group with members of its own cannot
# have limited groups below it, so the machine does not stay in its first one.
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# podman fails if there is no controller; some hosts have given no controller to the groups below the first one.
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
    echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true
done
mkdir "/sys/fs/cgroup/$group"
echo $$ >"/sys/fs/cgroup/$group/cgroup.procs"
# Its first process collects the processes that have lost their parents.
exec unshare --cgroup sh -ec '
    umount /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mkdir /sys/fs/cgroup/machine
    echo $$ >/sys/fs/cgroup/machine/cgroup.procs
    exec unshare --pid --fork --kill-child --mount-proc sh -c "printf machine >/proc/self/comm; sleep 900 & wait"'
