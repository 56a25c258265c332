//! Installation, upgrade and removal.

use crate::lab::{Node, Served, UNITS, VERSIONS, on_packages};

/// Names of the running programs, without those of tests.
fn running(served: &Served) -> String {
    served
        .machine
        .run("ps -o comm= -C ibtapd,ibtap-em,ibtap-fs")
        .out
}

#[test]
fn packages_serve_after_installation_and_leave_nothing_after_purge() {
    on_packages(|served| {
        let machine = &served.machine;
        let packages = ["ibtap", "ibtap-em", "ibtap-fs"];
        let purge = format!("dpkg --purge {} 2>&1", packages.join(" "));
        served.long(&purge);
        served.install(VERSIONS[0], &packages);
        for unit in UNITS {
            assert_eq!(served.property(unit, "ActiveState"), "inactive");
            assert_eq!(served.property(unit, "UnitFileState"), "disabled");
        }

        // The commands of docs/install.md.
        served.long(
            "ibtapd --check-config /etc/ibtap/ibtapd.toml
            systemctl enable --now ibtapd ibtap-em ibtap-fs 2>&1",
        );
        served.reach_peer();
        for unit in UNITS {
            let status = machine
                .run(&format!("systemctl status --no-pager {unit}"))
                .out;
            assert_eq!(served.property(unit, "ActiveState"), "active", "{status}");
        }
        let users = machine.ok("ps -o user=,comm= -C ibtapd,ibtap-em,ibtap-fs | sort | tr -s ' '");
        assert_eq!(users, "ibtap ibtap-em\nibtap ibtap-fs\nibtap ibtapd\n");
        machine.ok("grep ACTIVE /run/ibtap-fs/infiniband/soft_eth0/ports/1/state");
        // The daemon of the user ibtap could not lock the port against root.
        let findings = machine.run("ibtap doctor").out;
        let port = findings.lines().find(|line| line.contains("port 4791"));
        assert!(
            port.is_some_and(|line| line.contains("is in use by ibtapd")),
            "{findings}"
        );

        // The upgrade of docs/install.md. apt would remove packages that it does not name.
        let files = packages.map(|package| format!("/host/{}/{package}_*.deb", VERSIONS[1]));
        served.long(&format!("apt-get install -y {} 2>&1", files.join(" ")));
        for unit in UNITS {
            assert_eq!(served.property(unit, "ActiveState"), "active");
        }
        let versions = machine.ok("dpkg-query -W -f '${Version}\n' ibtap ibtap-em ibtap-fs | uniq");
        assert_eq!(versions, format!("{}-1\n", VERSIONS[1]));

        served.long(&purge.replace("--purge", "--remove"));
        assert_eq!(running(served), "");
        machine.ok(
            "test -e /etc/ibtap/ibtapd.toml && test ! -e /run/ibtap && test ! -e /run/ibtap-fs",
        );
        machine.ok("! ip link show ib0 && ! grep ibtap-fs /proc/mounts");

        // A removed package comes back as it was.
        served.install(VERSIONS[1], &["ibtap"]);
        assert_eq!(served.property("ibtapd", "UnitFileState"), "enabled");
        served.long("systemctl start ibtapd; cp /etc/ibtap/ibtapd.toml /etc/ibtap/storage.toml");

        served.long(&purge);
        assert_eq!(running(served), "");
        let left = machine.ok(
            "find / -xdev -iname '*ibtap*' ! -path '/tmp/*' ! -path '/proc/*'
            find /run /dev /sys/class/net -iname '*ibtap*' -o -name 'ib0*'
            grep ibtap /etc/passwd /etc/group /etc/shadow
            dpkg -l 'ibtap*' 2>/dev/null | grep ibtap
            systemctl list-units --all --no-legend 'ibtap*'",
        );
        assert_eq!(left, "");
    });
}

#[test]
fn a_process_of_the_user_a_foreign_socket_and_a_copy_survive_a_purge() {
    on_packages(|served| {
        let machine = &served.machine;
        let purge = "dpkg --purge ibtap ibtap-em ibtap-fs 2>&1";
        served.long(purge);
        served.install(VERSIONS[0], &["ibtap"]);
        served.long("systemctl enable --now ibtapd 2>&1");
        machine.ok(
            "touch /run/ibtap/foreign.sock
            mkdir -p /etc/ibtap/old/empty
            cp /etc/ibtap/ibtapd.toml /etc/ibtap/old/ibtapd.toml
            touch /etc/ibtap/old/ibtap-em.toml
            setpriv --reuid ibtap --regid ibtap --clear-groups sleep 1000 >/dev/null 2>&1 </dev/null &
            echo $! >/tmp/sleep.pid",
        );
        let said = served.long(purge);
        assert!(said.contains("The user ibtap stays"), "{said}");
        machine.ok("test -e /run/ibtap/foreign.sock && getent passwd ibtap");
        // A copy of ibtap-em's file stays, as the file itself would.
        let files = machine.ok("find /etc/ibtap ! -type d; rm -r /etc/ibtap");
        assert_eq!(files, "/etc/ibtap/old/ibtap-em.toml\n");
        let left = machine.ok("find /etc/systemd /var/lib/systemd -name 'ibtap*'");
        assert_eq!(left, "");
        machine.ok("kill $(cat /tmp/sleep.pid)
            while [ -e /proc/$(cat /tmp/sleep.pid) ]; do sleep 0.1; done
            rm -r /run/ibtap /tmp/sleep.pid && userdel ibtap");
    });
}

#[test]
fn an_upgrade_restarts_a_running_daemon_and_keeps_its_configuration() {
    on_packages(|served| {
        let machine = &served.machine;
        served.install(VERSIONS[0], &["ibtap"]);
        machine.ok("echo '# a comment of the administrator' >>/etc/ibtap/ibtapd.toml");
        // An installation of before the user ibtap.
        machine.ok("mkdir -p /etc/systemd/system/ibtapd.service.d
            printf '[Service]\nUser=root\n' >/etc/systemd/system/ibtapd.service.d/root.conf
            systemctl daemon-reload");
        served.long("systemctl enable --now ibtapd 2>&1");
        let _peer = served.reach_peer();
        let process = || served.property("ibtapd", "MainPID");
        let user = || machine.ok("ps -o user= -C ibtapd").trim().to_owned();
        let (before, index) = (process(), machine.ok("cat /sys/class/net/ib0/ifindex"));
        assert_eq!(user(), "root");

        let package = |version| format!("/host/{version}/ibtap_*.deb");
        let upgrade = format!(
            "rm -r /etc/systemd/system/ibtapd.service.d
            dpkg -i {}",
            package(VERSIONS[1])
        );
        served.keeps_pings("upgrade from root to the user ibtap", &upgrade, 0);
        assert_ne!(process(), before);
        assert_eq!(user(), "ibtap");
        assert_eq!(machine.ok("cat /sys/class/net/ib0/ifindex"), index);
        let version = machine.ok("dpkg-query -W -f '${Version}' ibtap");
        assert_eq!(version, format!("{}-1", VERSIONS[1]));
        machine.ok("grep -q 'a comment of the administrator' /etc/ibtap/ibtapd.toml");

        // A stopped daemon stays stopped.
        served.long(&format!(
            "systemctl stop ibtapd; dpkg -i {} 2>&1",
            package(VERSIONS[1])
        ));
        assert_eq!(served.property("ibtapd", "ActiveState"), "inactive");
    });
}
