//! The commands of the page `docs/containers.md`, typed as printed, and the files for container engines in
//! `packaging`.

use std::path::Path;
use std::time::Duration;

use kit::pages::commands_of;

use crate::lab::{Host, Lab, Shell, eventually, ibtap, ibtapd};
use crate::pages::{both_do, two_hosts, two_running};

/// Makes the root file system of a container in a folder: busybox, `ip`, `ping` and these programs, with
/// their libraries.
fn make_root(shell: &Shell, folder: &str, programs: &[&Path]) {
    let programs: Vec<_> = programs
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    shell.ok(&format!(
        "mkdir -p {folder} && cd {folder}
         mkdir dev etc proc run sys tmp var bin sbin
         for program in busybox ip ping {}; do
             program=$(command -v $program)
             strip -o bin/${{program##*/}} $program
             cp -L --parents $(ldd $program | grep -o '/[^ ]*') .
         done
         for name in cat sh sleep; do ln -s busybox bin/$name; done",
        programs.join(" ")
    ));
}

/// Settings of podman for any machine: files in no other format than copies, no service manager, and no
/// limits that need rights.
const PODMAN: &str = r#"
cat >/run/runtime <<'EOF'
#!/bin/sh
# podman asks for higher limits than a container's root may set.
for word; do
    case $last in
        --bundle) file=$word/config.json ;;
        --process) file=$word ;;
        *) file= ;;
    esac
    [ -z "$file" ] || sed -i -E 's/,"rlimits":\[[^]]*\]//' "$file"
    last=$word
done
exec crun --cgroup-manager=disabled "$@"
EOF
chmod 755 /run/runtime
mkdir -p /etc/containers
cat >/etc/containers/containers.conf <<EOF
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
infra_image = "localhost/pause"
lock_type = "file"
runtime = "/run/runtime"
EOF
cat >/etc/containers/storage.conf <<EOF
[storage]
driver = "vfs"
graphroot = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
EOF
"#;

/// Imports the root file system as the image `ibtap`, with the entry point of `scripts/package image`.
fn import(shell: &Shell, engine: &str) {
    make_root(shell, "/run/root", &[ibtapd(), ibtap()]);
    import_as(shell, engine, "ibtap", r#"["/bin/ibtapd"]"#);
}

/// Imports the root file system as an image with this entry point.
fn import_as(shell: &Shell, engine: &str, image: &str, entry: &str) {
    shell.ok(&format!(
        "tar -c -C /run/root . | {engine} import --change 'ENTRYPOINT {entry}' - {image}"
    ));
}

/// Configures podman, and imports the image.
fn start_podman(shell: &Shell) {
    shell.ok(PODMAN);
    import(shell, "podman");
}

/// A machine with Docker's engine, which has the image. The engine does not change the firewall.
fn docker(host: &Host, number: usize) -> Shell {
    let shell = Shell::with_packages(host, number, &["docker"]);
    shell.start(
        "dockerd --iptables=false --ip6tables=false --ip-masq=false --storage-driver=vfs \
         --exec-opt=native.cgroupdriver=cgroupfs",
    );
    eventually(STARTED, "Docker's answer", || {
        (shell.run("docker version").code == Some(0)).then_some(())
    });
    import(&shell, "docker");
    shell
}

/// Time limit for a container to be useful; each look starts an engine.
const STARTED: Duration = Duration::from_secs(60);

/// A file of `packaging`.
fn packaged(name: &str) -> String {
    format!("{}/packaging/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_pages_podman_works_as_printed() {
    let Some((_lab, shells)) = two_hosts() else {
        return;
    };
    shells.iter().for_each(start_podman);
    let engine: [String; 2] = commands_of("containers.md", "podman");
    let daemon: [String; 3] = commands_of("containers.md", "The daemon in a container");
    for block in engine.iter().chain(&daemon) {
        both_do(&shells, block);
    }
    // The page's options for other namespaces: a restarted daemon restores settings of interfaces there.
    let write = "echo 2 >/proc/sys/net/ipv4/conf/lo/rp_filter";
    let with = |option: &str| {
        shells[0].run(&format!(
            "podman run --rm --network none --cap-add NET_ADMIN --cap-add SYS_ADMIN {option} \
             --entrypoint sh ibtap -c '{write}'"
        ))
    };
    let [refused, done] = ["", "--security-opt unmask=/proc/sys"].map(with);
    assert!(refused.code != Some(0), "{refused:?}");
    assert_eq!(done.code, Some(0), "{done:?}");
}

#[test]
fn the_pages_cni_plugins_work_as_printed() {
    let Some((_lab, shells)) = two_hosts() else {
        return;
    };
    // Three plugins: add, ping, delete.
    let blocks: [String; 8] = commands_of("containers.md", "CNI");
    for block in &blocks {
        both_do(&shells, block);
    }
}

/// The plugin keeps the name of a child in the alias, which the daemon writes, too.
#[test]
fn the_cni_plugin_host_device_moves_a_child_again_and_again() {
    let Some((_lab, shells)) = two_hosts() else {
        return;
    };
    shells[0].ok(r#"
        ip netns add pod
        export CNI_PATH=/usr/lib/cni CNI_CONTAINERID=pod CNI_NETNS=/run/netns/pod CNI_IFNAME=net1
        ip tuntap add dev ib0.8001 mode tap
        echo '{ "cniVersion": "1.0.0", "name": "child", "type": "host-device", "device": "ib0.8001" }' >/run/child.json
        for turn in $(seq 30); do
            CNI_COMMAND=ADD /usr/lib/cni/host-device </run/child.json
            CNI_COMMAND=DEL /usr/lib/cni/host-device </run/child.json
            # As on a child that no plugin has moved.
            ip link set ib0.8001 alias ''
        done"#);
}

#[test]
fn the_pages_lxc_works_as_printed() {
    let Some((_lab, shells)) = two_hosts() else {
        return;
    };
    for shell in &shells {
        make_root(shell, "/var/lib/lxc/box/rootfs", &[]);
        shell.ok("cd /var/lib/lxc/box
                  printf '#!/bin/sh\\nexec sleep 600\\n' >rootfs/sbin/init
                  chmod 755 rootfs/sbin/init
                  echo lxc.rootfs.path = dir:$PWD/rootfs >config
                  echo lxc.uts.name = box >>config");
    }
    let blocks: [String; 2] = commands_of("containers.md", "LXC");
    for block in &blocks {
        both_do(&shells, block);
    }
}

/// podman knows no DaemonSet, but runs its pod.
#[test]
fn the_kubernetes_pod_serves_its_node() {
    let Some(mut lab) = Lab::pair() else { return };
    let (peer, node) = lab.two();
    peer.start(&[]);
    peer.configure("ib0");
    let shell = Shell::open(node, 2);
    start_podman(&shell);
    import_as(&shell, "podman", "pause", r#"["/bin/sleep", "600"]"#);
    shell.ok(&format!(
        "rm /run/ibtap/ibtapd.sock
         sed 's/^kind: DaemonSet/kind: Deployment/' {} >/run/pod.yaml
         podman kube play /run/pod.yaml",
        packaged("kubernetes.yaml")
    ));
    eventually(STARTED, "ib0 of the pod", || {
        (shell.run("ibtap show ib0").code == Some(0)).then_some(())
    });
    node.configure("ib0");
    node.reaches(peer);
    shell.ok("podman kube down /run/pod.yaml");
    assert!(node.has_link("ib0"), "it is persistent");
}

#[test]
fn the_pages_docker_works_as_printed() {
    let Some(mut lab) = two_running() else {
        return;
    };
    let (a, b) = lab.two();
    let shells = [docker(a, 1), docker(b, 2)];
    let blocks: [String; 3] = commands_of("containers.md", "Docker");
    for block in &blocks {
        both_do(&shells, block);
    }
}

/// Starts the hosts of the file.
fn two_composed(shell: &Shell, engine: &str) {
    let compose = format!("{engine} -f {}", packaged("compose.yaml"));
    shell.ok(&format!("{compose} up -d"));
    eventually(STARTED, "host2 of the file", || {
        let ping = format!("{compose} exec -T host1 ping -c 1 10.9.0.2");
        (shell.run(&ping).code == Some(0)).then_some(())
    });
}

#[test]
fn the_compose_file_makes_two_hosts() {
    let Some(mut lab) = Lab::pair() else { return };
    let (a, b) = lab.two();
    let shell = Shell::open(a, 1);
    start_podman(&shell);
    two_composed(&shell, "podman-compose");
    two_composed(&docker(b, 2), "docker-compose");
}
