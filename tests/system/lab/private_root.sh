# Makes a mount namespace look like a machine of its own, and stays until killed. Nothing here changes the machine's files.
#
#     private_root.sh SOCKET [LAYER...]
#
# /run is empty but for the control socket, so two machines may have namespaces of the same name. With layers (folders
# of unpacked packages; the last is on top), /etc, /usr and /var are the machine's with the layers over them, without
# the machine's network configuration. /run/ready is the last file made.

set -e
socket=$1
shift

mount -t tmpfs tmpfs /run
mkdir -p /run/ibtap /run/lock
ln -s "$socket" /run/ibtap/ibtapd.sock

if [ $# -gt 0 ]; then
    for folder in etc usr var; do
        lower=/$folder
        for layer in "$@"; do
            [ ! -d "$layer/$folder" ] || lower=$layer/$folder:$lower
        done
        mkdir -p "/run/layers/$folder/upper" "/run/layers/$folder/work"
        mount -t overlay overlay "/$folder" \
            -o "lowerdir=$lower,upperdir=/run/layers/$folder/upper,workdir=/run/layers/$folder/work"
    done
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
fi

touch /run/ready
exec sleep 600
