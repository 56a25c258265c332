# Debian packages; sourced by scripts/package.

package_deb() {
    local package root=$SCRATCH/deb debug=$SCRATCH/deb-debug compression=(-Zxz)
    [ -z "$fast" ] || compression=(-Zgzip -z1)
    need_tools dpkg-deb=dpkg dpkg-shlibdeps=dpkg-dev lintian=lintian
    build_once
    rm -f "$out"/ibtap*.deb
    for package in "${PACKAGES[@]}"; do
        "$ROOT/scripts/install" --prefix /usr --destdir "$root/$package" --bin "$bin" --debug "$debug" \
            --unitdir /lib/systemd/system "$package"
        debian_documents "$root/$package" "$package"
        # Debian's zsh looks there.
        mv "$root/$package/usr/share/zsh/"{site-functions,vendor-completions}
        mkdir "$root/$package/DEBIAN"
        debian_control "$root/$package" "$package" >"$root/$package/DEBIAN/control"
        [ -z "$(conffile "$package")" ] || conffile "$package" >"$root/$package/DEBIAN/conffiles"
        debian_scripts "$root/$package/DEBIAN" "$package"
        build_deb "$root/$package"
    done
    deb_made=1
    debian_debug "$debug"
    # Debug files are checked by the build ids of the programs only.
    lintian --allow-root --fail-on error --tag-display-limit 0 "$out"/ibtap{,-em,-fs}_*.deb
}

# build_deb ROOT: part of package_deb, with its variables.
build_deb() {
    (cd "$1" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    chmod 644 "$1/DEBIAN/md5sums"
    find "$1" -type d -exec chmod 755 {} +
    dpkg-deb --root-owner-group "${compression[@]}" --build "$1" "$out" >/dev/null
}

# debian_documents ROOT PACKAGE: names and files that the Debian policy wants (12.5, 12.7).
debian_documents() {
    local folder=$1/usr/share/doc/$2
    gzip -9n <"$folder/CHANGELOG.md" >"$folder/changelog.gz"
    printf 'ibtap (%s-1) unstable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' \
        "$version" "$MAINTAINER" "$(git -C "$ROOT" log -1 --format=%cD 2>/dev/null || date -R)" \
        | gzip -9n >"$folder/changelog.Debian.gz"
    {
        printf 'ibtap has the licence MIT or Apache-2.0, at your choice.\n'
        printf 'The text of Apache-2.0 is in /usr/share/common-licenses/Apache-2.0. The text of MIT:\n\n'
        cat "$folder/LICENSE-MIT"
    } >"$folder/copyright"
    rm "$folder"/{CHANGELOG.md,LICENSE-MIT,LICENSE-APACHE}
}

# debian_head ROOT PACKAGE SECTION: the part of the control file that all packages have.
debian_head() {
    printf '%s\n' "Package: $2" "Source: ibtap" "Version: $version-1" "Architecture: amd64" \
        "Maintainer: $MAINTAINER" "Section: $3" "Priority: optional" \
        "Installed-Size: $(du -sk --exclude=DEBIAN "$1" | cut -f1)"
}

# debian_control ROOT PACKAGE
debian_control() {
    local depends
    mkdir -p "$SCRATCH/shlibs/debian"
    printf 'Source: ibtap\n\nPackage: %s\nArchitecture: any\n' "$2" >"$SCRATCH/shlibs/debian/control"
    depends=$(cd "$SCRATCH/shlibs" && dpkg-shlibdeps -O "$1"/usr/bin/* 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
    [ -n "$depends" ] || die "dpkg-shlibdeps finds no libraries of $2"
    # deb-systemd-helper and deb-systemd-invoke of the scripts are in init-system-helpers, which is essential.
    case $2 in
        ibtap) depends="$depends, systemd | systemd-standalone-sysusers | systemd-sysusers" ;;
        *) depends="$depends, ibtap (= $version-1)" ;;
    esac
    debian_head "$1" "$2" net
    printf 'Depends: %s\n' "$depends"
    # libibverbs and librdmacm are loaded on demand.
    [ "$2" != ibtap ] || printf '%s\n' "Suggests: ibverbs-providers, librdmacm1, libibumad3, iproute2"
    printf 'Description: %s\n' "$(summary "$2")"
    description "$2" | fold -s -w 76 | sed 's/^/ /; s/ *$//'
}

# debian_scripts FOLDER PACKAGE: the scripts that dpkg runs. The unit is neither enabled nor started: its
# configuration needs the name of an interface first.
debian_scripts() {
    local unit units
    units=$(units "$2")
    unit=${units%% *}
    {
        printf '#!/bin/sh\nset -e\n[ "$1" = configure ] || [ "$1" = abort-upgrade ] || exit 0\n'
        [ "$2" != ibtap ] || printf 'systemd-sysusers ibtap.conf\n'
        cat <<SCRIPT
# An installed unit stays enabled if it was; a new one counts as enabled there.
if deb-systemd-helper debian-installed $unit && deb-systemd-helper --quiet was-enabled $unit; then
    deb-systemd-helper enable $unit >/dev/null || true
fi
deb-systemd-helper update-state $unit >/dev/null || true
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    # An upgrade. systemd keeps the queues of the interfaces over the restart.
    [ -z "\$2" ] || deb-systemd-invoke try-restart $units || true
fi
SCRIPT
    } >"$1/postinst"
    cat >"$1/prerm" <<SCRIPT
#!/bin/sh
set -e
if [ "\$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop $units || true
fi
SCRIPT
    {
        printf '#!/bin/sh\nset -e\n'
        cat <<SCRIPT
if [ "\$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
fi
SCRIPT
        # First, because it must also happen if another step fails.
        printf 'if [ "$1" = purge ]; then\n    deb-systemd-helper purge %s >/dev/null || true\nfi\n' "$unit"
        debian_removal "$2"
    } >"$1/postrm"
    chmod 755 "$1"/{postinst,prerm,postrm}
}

# debian_removal PACKAGE: the part of its postrm for files that no package contains.
debian_removal() {
    case $1 in
        ibtap)
            cat <<'SCRIPT'
# Each daemon removes its own socket. Sockets of daemons in containers may be there.
if [ "$1" = remove ] && [ -d /run/ibtap ]; then
    rmdir --ignore-fail-on-non-empty /run/ibtap
fi
if [ "$1" = purge ]; then
    rm -f /etc/systemd/system/multi-user.target.wants/ibtapd@*.service
    # ibtap-em may still be there with its configuration only.
    if [ -d /etc/ibtap ]; then
        find /etc/ibtap -mindepth 1 ! -type d ! -name 'ibtap-em.toml*' -delete
        find /etc/ibtap -mindepth 1 -type d -empty -delete
        rmdir --ignore-fail-on-non-empty /etc/ibtap
    fi
    if [ ! -e /var/lib/ibtap-em ] && getent passwd ibtap >/dev/null; then
        userdel ibtap || echo "The user ibtap stays: userdel ibtap failed." >&2
    fi
fi
SCRIPT
            ;;
        ibtap-em)
            cat <<'SCRIPT'
if [ "$1" = purge ]; then
    rm -rf /var/lib/ibtap-em
    if [ -d /etc/ibtap ]; then
        rmdir --ignore-fail-on-non-empty /etc/ibtap
    fi
    # The user of both packages, if ibtap has gone before.
    if [ ! -e /usr/lib/sysusers.d/ibtap.conf ] && getent passwd ibtap >/dev/null; then
        userdel ibtap || echo "The user ibtap stays: userdel ibtap failed." >&2
    fi
fi
SCRIPT
            ;;
        ibtap-fs)
            cat <<'SCRIPT'
if [ "$1" = remove ] && [ -d /run/ibtap-fs ]; then
    rmdir --ignore-fail-on-non-empty /run/ibtap-fs
fi
SCRIPT
            ;;
    esac
}

# debian_debug DEBUG: the debug files of all programs; part of package_deb, with its variables.
debian_debug() {
    local folder=$1/usr/share/doc/ibtap-dbgsym
    mkdir -p "$1/DEBIAN" "$folder"
    cp "$root/ibtap/usr/share/doc/ibtap/"{copyright,changelog.Debian.gz} "$folder"
    {
        debian_head "$1" ibtap-dbgsym debug
        printf '%s\n' "Description: debug files of ibtap, ibtap-em and ibtap-fs" \
            " For gdb and for readable stack traces. The files match the programs of version $version."
    } >"$1/DEBIAN/control"
    build_deb "$1"
}
