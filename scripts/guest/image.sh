# The guests' kernel and root file system; sourced by main.sh.
# Both come from Debian packages, which are downloaded and unpacked here, never installed. No script of a
# package runs.

CACHE=${IBTAP_GUEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ibtap-guest}
KERNEL=$CACHE/vmlinux
INITRAMFS=$CACHE/initramfs.cpio
. "$ROOT/scripts/guest/infiniband.sh"
. "$ROOT/scripts/guest/disk.sh"

# Contents of a guest: programs, their packages, and the kernel's modules. Required libraries and modules are
# found automatically.
GUEST_PACKAGES=(
    bash busybox ethtool ibverbs-providers ibverbs-utils infiniband-diags iperf3 iproute2 iputils-ping
    kmod libc6 procps rdma-core rdmacm-utils strace tcpdump
)
GUEST_PROGRAMS=(
    bash bridge busybox ethtool ibv_asyncwatch ibv_devices ibv_devinfo ibv_rc_pingpong
    ibv_srq_pingpong ibv_uc_pingpong ibv_ud_pingpong iperf3 ip kmod mckey pgrep ping pkill ps
    rdma rdma_client rdma_server rdma_xclient rdma_xserver riostream rping rstream saquery smpquery ss
    strace sysctl tc tcpdump ucmatose udaddy udpong
)
GUEST_MODULES=(
    9p 9pnet_virtio ext4 virtio_blk virtio_pci virtio_mmio virtio_net virtio_rng
    crc32_generic crc32_pclmul crc32c_generic ib_ipoib ib_umad ib_uverbs rdma_rxe rdma_rxe_ib rdma_ucm
    8021q bonding bridge dummy fuse ifb macsec tun veth
    aesni_intel ctr drbg esp4 gcm ghash_generic seqiv sha512_generic wireguard xfrm_user
    act_mirred cls_matchall cls_u32 sch_ingress sch_netem sch_tbf
    nf_tables nft_limit nft_numgen
)

# no_guests REASON: guests are impossible here.
no_guests() {
    printf '%s: no guests: %s\n' "${0##*/}" "$*" >&2
    exit 77
}

# make_image [--fresh]: one process creates the image; others wait and find it.
make_image() {
    check_guests
    mkdir -p "$CACHE"
    exec 9>"$CACHE/lock"
    flock 9
    [ "${1:-}" != --fresh ] || rm -rf "$CACHE/packages" "$CACHE/key"
    if [ "$(cat "$CACHE/key" 2>/dev/null)" != "$(image_key)" ]; then
        say "making the guests' image in $CACHE"
        rm -rf "$CACHE/making" "$CACHE/key"
        mkdir -p "$CACHE/making" "$CACHE/packages"
        download_packages
        unpack_packages
        make_infiniband
        make_kernel
        make_root
        # Its modules are those of the former image.
        rm -f "$DISK"
        rm -rf "$CACHE/making"
        find_accelerator
        image_key >"$CACHE/key"
    fi
    exec 9>&-
}

# A change of these files creates the image again.
image_key() {
    cat "$ROOT/scripts/guest/"{image.sh,infiniband.sh,disk.sh,init,serve} "$INFINIBAND_PATCH" | sha256sum
}

check_guests() {
    [ "$(uname -m)" = x86_64 ] || no_guests "guests are x86-64, this machine is $(uname -m)"
    command -v apt-get >/dev/null && command -v dpkg >/dev/null \
        || no_guests "apt-get, which downloads Debian's kernel, is missing"
    # In a subshell, because need_tools ends its shell on failure.
    (need_tools qemu-system-x86_64=qemu-system-x86 cpio=cpio depmod=kmod xz=xz-utils zstd=zstd readelf=binutils \
        flock=util-linux ip=iproute2 sysctl=procps python3=python3) \
        || no_guests "QEMU or the tools for the image cannot be installed"
}

download_packages() {
    local names wanted name
    names=$(package_names) || { update_packages >&2 && names=$(package_names); } \
        || no_guests "apt-get finds no package linux-image-amd64"
    # Their names do not contain the release of the kernel.
    compgen -G "$CACHE/packages/$(kernel_package)_*.deb" >/dev/null \
        || rm -f "$CACHE"/packages/linux-{source,kbuild}-*.deb
    download_missing "$names" || { update_packages >&2 && download_missing "$names"; } \
        || no_guests "apt-get cannot download kernel and programs"
}

kernel_package() {
    apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ {print $2; exit}'
}

# The kernel's package, those of the programs, and of all libraries that they might need.
package_names() {
    local kernel
    kernel=$(kernel_package)
    [ -n "$kernel" ] || return 1
    printf '%s\n' "$kernel" "${GUEST_PACKAGES[@]}"
    apt-cache depends --recurse --important "${GUEST_PACKAGES[@]}" \
        | grep -E '^(lib|zlib)[a-z0-9.+-]*$' | grep -v -e -perl$ -e -dev$
}

download_missing() {
    local name missing=()
    for name in $(sort -u <<<"$1"); do
        compgen -G "$CACHE/packages/${name}_*.deb" >/dev/null || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    (cd "$CACHE/packages" && timeout 600 apt-get -qq -o APT::Sandbox::User=root download "${missing[@]}")
}

# Programs and libraries to making/all, the kernel to making/kernel. The cache may have older kernels, and has the
# packages of infiniband.sh.
unpack_packages() {
    local package
    mkdir -p "$CACHE/making/all" "$CACHE/making/kernel"
    dpkg -x "$CACHE/packages/$(kernel_package)"_*.deb "$CACHE/making/kernel"
    for package in "$CACHE"/packages/*.deb; do
        case ${package##*/} in
            linux-*) ;;
            *) dpkg -x "$package" "$CACHE/making/all" ;;
        esac
    done
}

# The kernel as an ELF file, which QEMU enters by its PVH note: unpacking the kernel would take an emulated
# guest seconds.
make_kernel() {
    local packed
    packed=$(echo "$CACHE"/making/kernel/boot/vmlinuz-*)
    python3 - "$packed" "$CACHE/making/vmlinux" <<'PYTHON' || no_guests "their kernel is packed unexpectedly"
import lzma, struct, subprocess, sys

# Documentation/x86/boot.rst: setup_sects at 0x1f1, payload_offset at 0x248, payload_length at 0x24c.
image = open(sys.argv[1], "rb").read()
offset, length = struct.unpack_from("<II", image, 0x248)
payload = image[(image[0x1F1] + 1) * 512 + offset :][:length]
if payload.startswith(b"\xfd7zXZ\0"):
    elf = lzma.LZMADecompressor().decompress(payload)
elif payload.startswith(b"\x28\xb5\x2f\xfd"):
    elf = subprocess.run(["zstd", "-dc"], input=payload, stdout=subprocess.PIPE).stdout
else:
    sys.exit("neither xz nor zstd")
if not elf.startswith(b"\x7fELF"):
    sys.exit("no ELF file")
open(sys.argv[2], "wb").write(elf)
PYTHON
    mv "$CACHE/making/vmlinux" "$KERNEL"
}

make_root() {
    local root=$CACHE/making/root
    mkdir -p "$root"/usr/{bin,sbin,lib,lib64} \
        "$root"/{dev,proc,sys,tmp,run,etc,root,host,control} "$root/var/lib/dhcp"
    local folder
    for folder in bin sbin lib lib64; do
        ln -s "usr/$folder" "$root/$folder"
    done
    add_programs "$root"
    add_modules "$root"
    # tcpdump changes to the user with its name.
    printf '%s\n' 'root:x:0:0:root:/root:/bin/bash' 'tcpdump:x:999:999::/:/bin/false' >"$root/etc/passwd"
    printf '%s\n' 'root:x:0:' 'tcpdump:x:999:' >"$root/etc/group"
    printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
    install -m 755 "$ROOT/scripts/guest/"{init,serve} "$root"
    # Not compressed: a host reads it quickly, and unpacking would take an emulated guest seconds.
    (cd "$root" && find . -print0 | LC_ALL=C sort -z \
        | cpio --null -o -H newc --owner=0:0 --quiet) >"$CACHE/making/initramfs.cpio"
    mv "$CACHE/making/initramfs.cpio" "$INITRAMFS"
}

add_programs() {
    local root=$1 all=$CACHE/making/all name file
    for name in "${GUEST_PROGRAMS[@]}"; do
        for file in "$all"/{usr/bin,usr/sbin,bin,sbin}/"$name"; do
            [ -e "$file" ] || continue
            cp -L "$file" "$root/usr/${file#"$all"/}" 2>/dev/null || cp -L "$file" "$root/usr/bin/$name"
            break
        done
        [ -e "$file" ] || echo "the guests lack $name: no package contains it" >&2
    done
    for name in modprobe insmod rmmod lsmod depmod modinfo; do
        ln -s ../bin/kmod "$root/usr/sbin/$name"
    done
    "$root/usr/bin/busybox" --list | while read -r name; do
        [ -e "$root/usr/bin/$name" ] || [ -L "$root/usr/sbin/$name" ] || [ -e "$root/usr/sbin/$name" ] \
            || ln -s busybox "$root/usr/bin/$name"
    done
    ln -sf bash "$root/usr/bin/sh"
    # One driver for libibverbs, which tries every driver that it finds.
    install -D -t "$root/etc/libibverbs.d" "$all"/etc/libibverbs.d/rxe.driver
    mkdir -p "$root/usr/lib/x86_64-linux-gnu/libibverbs"
    cp "$all"/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so \
        "$root/usr/lib/x86_64-linux-gnu/libibverbs"
    [ ! -d "$all/etc/iproute2" ] || cp -r "$all/etc/iproute2" "$root/etc"
    add_libraries "$root"
}

# Libraries of the programs, libraries of these libraries, and some for the test programs.
add_libraries() {
    local root=$1 libraries=$1/usr/lib/x86_64-linux-gnu name added=1
    add_library ld-linux-x86-64.so.2
    ln -s ../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 "$root/usr/lib64/ld-linux-x86-64.so.2"
    for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libgcc_s.so.1; do
        add_library "$name"
    done
    while [ "$added" -gt 0 ]; do
        added=0
        for name in $(find "$root/usr" -type f \( -path '*bin/*' -o -name '*.so*' \) \
            -exec readelf -d {} + 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u); do
            [ ! -e "$libraries/$name" ] || continue
            add_library "$name"
            added=$((added + 1))
        done
    done
    ldconfig -r "$root"
}

# add_library NAME: part of add_libraries, with its variables.
add_library() {
    local file
    for file in "$CACHE"/making/all/{usr/lib,lib}/x86_64-linux-gnu/"$1"; do
        [ -e "$file" ] || continue
        cp -L "$file" "$libraries/$1"
        return
    done
    die "no package contains the library $1"
}

# The modules and their dependencies (modules.dep: "FILE: FILE...").
add_modules() {
    local root=$1 kernel=$CACHE/making/kernel release name line file
    release=$(ls "$kernel/lib/modules")
    local modules=lib/modules/$release
    depmod -b "$kernel" "$release"
    mkdir -p "$root/usr/$modules"
    for name in "${GUEST_MODULES[@]}"; do
        line=$(grep -E "/${name//_/[_-]}\.ko(\.[a-z]+)?:" "$kernel/$modules/modules.dep") || {
            echo "the guests lack the module $name: the kernel has none" >&2
            continue
        }
        for file in ${line/:/}; do
            [ ! -e "$root/usr/$modules/$file" ] || continue
            install -m 644 -D "$kernel/$modules/$file" "$root/usr/$modules/$file"
            case $file in
                *.xz) xz -d "$root/usr/$modules/$file" ;;
            esac
        done
    done
    cp "$kernel/$modules"/modules.{order,builtin,builtin.modinfo} "$root/usr/$modules"
    depmod -b "$root" "$release"
}
