# RPM packages; sourced by scripts/package. The service is neither enabled nor started: its configuration needs the
# name of an interface first.

package_rpm() {
    local package top=$SCRATCH/rpm
    need_tools rpmbuild=rpm
    build_once
    rm -f "$out"/ibtap*.rpm
    for package in "${PACKAGES[@]}"; do
        "$ROOT/scripts/install" --prefix /usr --destdir "$top/root/$package" --bin "$bin" --debug "$top/debug" "$package"
        rpm_spec "$top/root/$package" "$package" >"$top/$package.spec"
        build_rpm "$package"
    done
    rpm_debug_spec >"$top/ibtap-debuginfo.spec"
    mkdir -p "$top/root"
    mv "$top/debug" "$top/root/ibtap-debuginfo"
    build_rpm ibtap-debuginfo
}

# build_rpm PACKAGE: part of package_rpm, with its variables.
build_rpm() {
    rpmbuild -bb --quiet --noclean --target x86_64 --buildroot "$top/build/$1" --define "_topdir $top" --define "_rpmdir $out" \
        --define "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
        --define "_binary_payload w${fast:+1}${fast:-9}.gzdio" "$top/$1.spec" >"$SCRATCH/rpm.log" 2>&1 \
        || { cat "$SCRATCH/rpm.log" >&2; die "rpmbuild could not make $1"; }
}

# rpm_head PACKAGE SUMMARY
rpm_head() {
    # The programs are stripped already, and nothing is compiled.
    cat <<SPEC
%global debug_package %{nil}
%global __os_install_post %{nil}
Name: $1
Version: $version
Release: 1
Summary: $2
License: MIT OR Apache-2.0
Packager: $MAINTAINER
SPEC
}

# rpm_spec ROOT PACKAGE
rpm_spec() {
    local units enabled
    units=$(units "$2")
    # Unlike stop, disable takes no patterns.
    enabled=${units//\'/} enabled=${enabled//\*/}
    rpm_head "$2" "$(summary "$2")"
    if [ "$2" = ibtap ]; then
        # libibverbs and librdmacm are loaded on demand.
        printf 'Requires(pre): systemd\nSuggests: libibverbs librdmacm libibumad\n'
    else
        printf 'Requires: ibtap = %%{version}-%%{release}\n'
    fi
    printf '\n%%description\n%s\n' "$(description "$2")"
    cat <<SPEC

%install
cp -a "$1/." "%{buildroot}"

%post
$([ "$2" != ibtap ] || echo systemd-sysusers ibtap.conf)
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi

%preun
if [ \$1 -eq 0 ] && [ -d /run/systemd/system ]; then
    systemctl stop $units || :
    systemctl --no-reload disable $enabled || :
fi

%postun
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # An upgrade. systemd keeps the queues of the interfaces over the restart.
    [ \$1 -eq 0 ] || systemctl try-restart $units || :
fi

%files
SPEC
    [ "$2" != ibtap ] || echo '%dir /etc/ibtap'
    (cd "$1" && find . -type f -printf '/%P\n' | sort) | sed \
        -e 's#^/etc/.*#%config(noreplace) &#' -e 's#^/usr/share/man/.*#%doc &#' -e 's#^/usr/share/doc/.*#%doc &#'
}

rpm_debug_spec() {
    rpm_head ibtap-debuginfo "debug files of ibtap, ibtap-em and ibtap-fs"
    cat <<SPEC

%description
For gdb and for readable stack traces. The files match the programs of version $version.

%install
cp -a "$top/root/ibtap-debuginfo/." "%{buildroot}"

%files
/usr/lib/debug/.build-id/*/*.debug
SPEC
}
