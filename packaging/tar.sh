# The archive for other distributions; sourced by scripts/package.

# The oldest C library that the programs run with: that of RHEL 8 and Debian 10.
GLIBC=2.28

package_tar() {
    # Other formats of the same call have programs for this machine's C library.
    local name=ibtap-$version-x86_64-linux-gnu bin=$given
    build_for_old_glibc
    rm -f "$out/$name"*.tar.*
    "$ROOT/scripts/install" --prefix /usr --destdir "$SCRATCH/$name" --bin "$bin" --debug "$SCRATCH/$name-debug"
    # An upgrade must not replace the configuration.
    mv "$SCRATCH/$name/etc/ibtap/ibtapd.toml" "$SCRATCH/$name/usr/share/doc/ibtap"
    mv "$SCRATCH/$name/etc/ibtap/ibtap-em.toml" "$SCRATCH/$name/usr/share/doc/ibtap-em"
    rmdir -p --ignore-fail-on-non-empty "$SCRATCH/$name/etc/ibtap"
    check_glibc "$SCRATCH/$name"/usr/bin/*
    archive "$name"
    archive "$name-debug"
}

# archive NAME: with paths from the root folder, reproducible.
archive() {
    # Unpacked as root, the archive sets the modes of existing folders.
    find "$SCRATCH/$1" -type d -exec chmod 755 {} +
    tar -C "$SCRATCH/$1" --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || echo 0)" \
        -cf "$SCRATCH/$1.tar" .
    if [ -n "$fast" ]; then gzip -1n "$SCRATCH/$1.tar"; else xz -T0 "$SCRATCH/$1.tar"; fi
    mv "$SCRATCH/$1.tar".* "$out"
}

# Sets bin. The linker of zig has the symbols of old C libraries. Neither program is installed: a virtual environment
# of Python has both.
build_for_old_glibc() {
    local tools=$TARGET/zig
    [ -z "$bin" ] || return 0
    need_rust
    if [ ! -x "$tools/bin/cargo-zigbuild" ]; then
        need_tools python3=python3
        python3 -m venv "$tools" 2>/dev/null || need_venv "$tools"
        "$tools/bin/pip" install --quiet cargo-zigbuild==0.24.1 ziglang==0.17.1 \
            || die "pip cannot install cargo-zigbuild and ziglang"
    fi
    # zig's linker adds a build id only if asked.
    (cd "$ROOT" && PATH="$tools/bin:$PATH" IBTAP_REVISION=$(revision) \
        CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS=-Clink-arg=-Wl,--build-id=sha1 \
        cargo zigbuild --release --workspace --bins --target "x86_64-unknown-linux-gnu.$GLIBC")
    bin=$TARGET/x86_64-unknown-linux-gnu/release
}

need_venv() {
    need_tools /usr/share/python-wheels=python3-venv
    python3 -m venv "$1"
}

# check_glibc PROGRAM...
check_glibc() {
    local program newest
    for program in "$@"; do
        newest=$(readelf -W --dyn-syms "$program" | grep -o 'GLIBC_[0-9.]*' | sort -u -V | tail -n 1)
        printf '%s\n%s\n' "${newest#GLIBC_}" "$GLIBC" | sort -C -V \
            || die "${program##*/} needs $newest, but the archive is for glibc $GLIBC: leave out --bin"
    done
}
