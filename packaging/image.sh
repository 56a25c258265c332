# The OCI image; sourced by scripts/package. Debian's minimal system, ip, ping, the libraries for RDMA devices, and the
# package ibtap.

package_image() {
    local root=$SCRATCH/image layout=$SCRATCH/oci name=$out/ibtap-$version-image.tar
    need_root "container images"
    need_tools mmdebstrap=mmdebstrap umoci=umoci skopeo=skopeo
    # Not a package of an earlier call, which may be of another revision.
    [ -n "${deb_made:-}" ] || package_deb
    # The path of the package has only characters that mmdebstrap accepts.
    cp "$out/ibtap_$version-1_amd64.deb" "$SCRATCH/ibtap.deb"
    mmdebstrap --quiet --variant=minbase --mode=root \
        --include=iproute2,iputils-ping,ibverbs-providers,librdmacm1,libibumad3,systemd-standalone-sysusers \
        --aptopt='Acquire::Languages "none"' --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook="cp '$SCRATCH/ibtap.deb' \"\$1/tmp/\"" --customize-hook='chroot "$1" dpkg -i /tmp/ibtap.deb' \
        --customize-hook='rm -r "$1/tmp/ibtap.deb" "$1/var/lib/apt/lists/"* "$1/var/log/"*' \
        "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" \
        || die "mmdebstrap cannot make Debian's minimal system"
    umoci init --layout "$layout"
    umoci new --image "$layout:latest"
    umoci insert --image "$layout:latest" --history.created_by "scripts/package image" "$root" / >/dev/null
    umoci config --image "$layout:latest" --config.entrypoint /usr/bin/ibtapd --config.cmd --help \
        --config.label "org.opencontainers.image.version=$version" \
        --config.label "org.opencontainers.image.revision=$(revision)" \
        --config.label "org.opencontainers.image.licenses=MIT OR Apache-2.0"
    rm -f "$name"
    skopeo copy --quiet "oci:$layout:latest" "docker-archive:$name:ibtap:$version"
}
