# The module rdma_rxe_ib, which gives guests an InfiniBand port; sourced by image.sh. The module is Debian's
# rdma_rxe with tests/guest/ib/rxe_ib.patch, built against the headers of the guests' kernel.

INFINIBAND_PATCH=$ROOT/tests/guest/ib/rxe_ib.patch
# The reason why the image lacks the module; empty if the image has the module.
INFINIBAND_LACKS=$CACHE/infiniband-lacks

# make_infiniband: adds the module to making/kernel. Guests of rxe-guest do not need the module: a failure is only
# noted.
make_infiniband() {
    local log=$CACHE/infiniband.log lacks=''
    build_infiniband >"$log" 2>&1 || lacks="$(tail -n 1 "$log"); see $log"
    printf '%s' "$lacks" >"$INFINIBAND_LACKS"
}

need_infiniband() {
    [ ! -s "$INFINIBAND_LACKS" ] || no_guests "$(cat "$INFINIBAND_LACKS"); scripts/ib-guest image --fresh tries again"
}

# In a subshell, because need_tools ends its shell on failure. The last line of its output is the reason of a failure.
build_infiniband() (
    release=$(ls "$CACHE/making/kernel/lib/modules")
    headers=$CACHE/making/headers
    rxe=$CACHE/making/rxe
    need_tools gcc-12=gcc-12 make=make patch=patch
    packages=("linux-headers-$release" "linux-headers-${release%-*}-common" "linux-kbuild-${release%.*}")
    source=linux-source-${release%.*}
    wanted=$(printf '%s\n' "${packages[@]}" "$source")
    download_missing "$wanted" || { update_packages && download_missing "$wanted"; } \
        || die "apt-get cannot download ${packages[*]} $source"
    for name in "${packages[@]}"; do
        dpkg -x "$CACHE/packages/$name"_*.deb "$headers"
    done
    # The package is installed nowhere, so its absolute path changes.
    sed -i "s#include /usr/src/#include $headers/usr/src/#" "$headers/usr/src/linux-headers-$release/Makefile"
    mkdir -p "$rxe"
    dpkg --fsys-tarfile "$CACHE/packages/$source"_*.deb \
        | tar -x -O "./usr/src/$source.tar.xz" \
        | xz -dc | tar -x -C "$rxe" --strip-components=5 "$source/drivers/infiniband/sw/rxe" \
        || die "$source has no drivers/infiniband/sw/rxe"
    patch -s -p1 -d "$rxe" <"$INFINIBAND_PATCH" || die "rxe_ib.patch does not match rdma_rxe of Linux $release"
    make -C "$headers/usr/src/linux-headers-$release" "M=$rxe" "-j$(nproc)" modules \
        || die "rdma_rxe_ib does not compile against Linux $release"
    install -m 644 -D -t "$CACHE/making/kernel/lib/modules/$release/extra" "$rxe/rdma_rxe_ib.ko"
)

# lid_v4 LID: the port's address if packets have the framing of IPv4.
lid_v4() {
    printf '10.99.%d.%d\n' $(($1 >> 8)) $(($1 & 255))
}

# infiniband_ports ENCAPSULATION PKEYS "NUMBER LID"...: the part of a guest's start script that creates the device
# rxeNUMBER on ethNUMBER for each port.
infiniband_ports() {
    local port number lid
    echo "modprobe rdma_rxe_ib encap=$1 pkeys=$2"
    for port in "${@:3}"; do
        read -r number lid <<<"$port"
        [ "$1" = 6 ] || echo "ip addr add $(lid_v4 "$lid")/16 dev eth$number"
        echo "rdma link add rxe$number type rxe netdev eth$number"
    done
    echo "modprobe -a ib_umad ib_uverbs rdma_ucm ib_ipoib"
}
