//! The life of the service.

use kit::pages::commands_of;

use crate::lab::{Node, SOFT, SOON, Served, Side, eventually, on_packages};

/// The service's process, and the index of its interface.
fn process_and_index(served: &Served) -> (String, String) {
    let index = served.machine.ok("cat /sys/class/net/ib0/ifindex");
    (served.property("ibtapd", "MainPID"), index)
}

/// Adds settings to the unit's section `Service`.
fn add_settings(served: &Served, settings: &str) {
    served.machine.ok(&format!(
        "mkdir -p /etc/systemd/system/ibtapd.service.d
        printf '[Service]\n{settings}\n' >/etc/systemd/system/ibtapd.service.d/test.conf
        systemctl daemon-reload"
    ));
}

#[test]
fn restarts_and_crashes_keep_interface_and_pings() {
    on_packages(|served| {
        let _peer = served.start();
        // A killed daemon may have read a packet that it has not sent.
        for (what, lost, disturb) in [
            ("restart", 0, "systemctl restart ibtapd"),
            (
                "kill -9",
                2,
                "old=$(systemctl show --value -p MainPID ibtapd)
                kill -KILL $old
                until systemctl -q is-active ibtapd && \\
                    [ $(systemctl show --value -p MainPID ibtapd) != $old ]; do sleep 0.1; done",
            ),
        ] {
            let before = process_and_index(served);
            served.keeps_pings(what, disturb, lost);
            let after = process_and_index(served);
            assert_ne!(after.0, before.0, "{what}: another process");
            assert_eq!(after.1, before.1, "{what}: the same interface");
        }
        assert_eq!(served.property("ibtapd", "NRestarts"), "1");
    });
}

#[test]
fn a_reload_waits_for_its_result_and_a_broken_file_causes_no_restarts() {
    on_packages(|served| {
        let machine = &served.machine;
        let _peer = served.start();
        let file = "/etc/ibtap/ibtapd.toml";
        let before = process_and_index(served);
        let write = |text: &str| machine.ok(&format!("printf '{text}' >{file}"));
        let interface = "[[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n";

        write(&format!("{interface}mode = \"connected\"\n"));
        machine.ok("systemctl reload ibtapd");
        assert_eq!(machine.mtu("ib0"), 65_520);

        let needs_restart = format!("{interface}qpn = 0x1234\n");
        for (text, reason) in [("nonsense = 1\n", "nonsense"), (&needs_restart, "restart")] {
            write(text);
            let reload = machine.run("systemctl reload ibtapd");
            assert_eq!(reload.code, Some(1), "{text}: {reload:?}");
            let journal = machine.ok("journalctl -b -u ibtapd -o cat -n 20");
            assert!(journal.contains(reason), "{journal}");
            assert_eq!(process_and_index(served), before);
            machine.reaches(&served.host.v4());
        }

        write("nonsense = 1\n");
        let restart = machine.run("systemctl restart ibtapd");
        assert_eq!(restart.code, Some(1), "{restart:?}");
        assert_eq!(served.property("ibtapd", "ActiveState"), "failed");
        // systemd would restart the service after 1 s.
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert_eq!(served.property("ibtapd", "ActiveState"), "failed");
        assert_eq!(served.property("ibtapd", "NRestarts"), "0");
        let errors = machine.ok("journalctl -b -u ibtapd -p err -o cat");
        assert!(errors.contains("nonsense"), "{errors}");

        write(interface);
        served.long("systemctl start ibtapd");
        machine.configure("ib0");
        machine.reaches(&served.host.v4());
    });
}

#[test]
fn the_watchdog_restarts_a_daemon_that_hangs_and_keeps_its_interface() {
    on_packages(|served| {
        let machine = &served.machine;
        let _peer = served.start();
        add_settings(served, "WatchdogSec=8");
        served.long("systemctl restart ibtapd");
        machine.reaches(&served.host.v4());
        let (process, index) = process_and_index(served);
        machine.ok(&format!("kill -STOP {process}"));
        eventually(SOON * 2, "another process", || {
            let running = served.property("ibtapd", "ActiveState") == "active";
            (running && served.property("ibtapd", "MainPID") != process).then_some(())
        });
        let journal = machine.ok("journalctl -b -u ibtapd -o cat");
        assert!(journal.contains("Watchdog timeout"), "{journal}");
        assert_eq!(process_and_index(served).1, index);
        machine.reaches(&served.host.v4());
    });
}

#[test]
fn log_lines_have_priorities_and_the_units_the_promised_exposure() {
    on_packages(|served| {
        let machine = &served.machine;
        served.have(&["ibtap", "ibtap-em", "ibtap-fs"]);
        machine.ok("sed -i '1i log_level = \"debug\"' /etc/ibtap/ibtapd.toml");
        let _peer = served.start();
        let lines = |priority: &str| {
            machine.ok(&format!(
                "journalctl -b -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show --value -p InvocationID ibtapd) -p {priority}..{priority}"
            ))
        };
        assert!(lines("info").contains("serving"), "{}", lines("info"));
        assert!(!lines("debug").is_empty() && !lines("debug").contains("serving"));
        for priority in ["emerg", "err", "warning"] {
            assert_eq!(lines(priority), "");
        }

        // docs/privileges.md promises these.
        let exposure = served.long(
            "exposure() {
                systemd-analyze security --no-pager $1 | sed -n \"s/.*exposure level for [^ ]*: \\([0-9.]*\\) .*/$1 $2 \\1/p\"
            }
            for unit in ibtapd ibtap-em ibtap-fs; do exposure $unit alone; done
            own=/etc/systemd/system/ibtapd.service.d
            mkdir $own
            for drop_in in rdma namespaces; do
                cp /usr/share/doc/ibtap/$drop_in.conf $own
                systemctl daemon-reload
                exposure ibtapd $drop_in
                rm $own/*
            done",
        );
        let promised = [
            "ibtapd alone 1.7",
            "ibtap-em alone 0.4",
            "ibtap-fs alone 0.7",
            "ibtapd rdma 1.7",
            "ibtapd namespaces 2.1",
        ];
        assert_eq!(exposure.lines().collect::<Vec<_>>(), promised);
        let verified = machine.ok(
            "systemd-analyze verify --man=no ibtapd.service ibtap-em.service ibtap-fs.service 2>&1",
        );
        assert_eq!(verified, "");
    });
}

#[test]
fn the_service_of_the_files_ends_only_its_own_mount() {
    on_packages(|served| {
        served.have(&["ibtap", "ibtap-fs"]);
        let is_mounted = "grep -q ' /run/ibtap-fs ' /proc/mounts";
        // One started by hand. systemctl starts the service again and again.
        served.long(&format!(
            "mkdir -p /run/ibtap-fs
            ibtap-fs /run/ibtap-fs >/dev/null 2>&1 </dev/null &
            until {is_mounted}; do sleep 0.1; done
            ! systemctl start ibtap-fs && systemctl stop ibtap-fs && {is_mounted} && umount /run/ibtap-fs"
        ));
        for end in [
            "systemctl stop ibtap-fs",
            "systemctl kill -s KILL ibtap-fs && sleep 0.2 && systemctl stop ibtap-fs",
        ] {
            served.long(&format!(
                "systemctl start ibtap-fs && {is_mounted} && {end} && ! {is_mounted} && test ! -e /run/ibtap-fs"
            ));
        }
    });
}

/// A service that starts when the network is online, and notes what it finds then and at its end.
const DEPENDENT: &str = "[Unit]
After=network-online.target
Wants=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c \"ip address show dev ib0 >/root/seen\"
ExecStop=/bin/sh -c \"sleep 2; cat /sys/class/net/ib0/carrier >/root/last\"
[Install]
WantedBy=multi-user.target
";

/// netplan and systemd-networkd, with the commands of docs/network-managers.md.
#[test]
fn the_interface_is_there_after_a_boot_before_services_that_need_the_network() {
    on_packages(|served| {
        let machine = &served.machine;
        served.have(&["ibtap"]);
        let [configure, _] = commands_of("network-managers.md", "netplan");
        machine.ok(&format!(
            "N=1
            {configure}
            cd /etc/systemd
            printf '[Match]\nName=eth0\n[Network]\nKeepConfiguration=yes\n' >network/eth0.network
            printf '%s' '{DEPENDENT}' >system/dependent.service
            systemctl -q enable systemd-networkd systemd-networkd-wait-online@ib0 ibtapd dependent"
        ));
        served.long("systemctl daemon-reload; systemctl start systemd-networkd ibtapd dependent && rm /root/seen");
        served.reboot();
        let seen = eventually(SOON, "the end of the boot", || {
            let state = machine.run("systemctl is-system-running").out;
            (state.trim() == "running").then(|| machine.ok("cat /root/seen"))
        });
        assert!(seen.contains("inet 10.0.0.1/24"), "{seen}");
        assert!(seen.contains("LOWER_UP"), "{seen}");
        // Services that need the network ended before the daemon.
        assert_eq!(machine.ok("cat /root/last"), "1\n");
        let _peer = Side::start(&served.host, SOFT);
        served.host.ok("ip address add 10.0.0.2/24 dev ib0");
        machine.reaches("10.0.0.2");
        assert_eq!(served.property("ibtapd", "NRestarts"), "0");

        served.long("sed -i s/10.0.0.1/10.0.0.11/ /etc/netplan/50-ib0.yaml && netplan apply");
        eventually(SOON, "the changed address", || {
            let now = machine.ok("ip -4 address show dev ib0");
            (now.contains("10.0.0.11/24") && !now.contains("10.0.0.1/24")).then_some(())
        });
        machine.reaches("10.0.0.2");
        assert_eq!(served.property("ibtapd", "NRestarts"), "0");
        served.long(
            "systemctl -q disable --now dependent systemd-networkd systemd-networkd.socket systemd-networkd-wait-online@ib0
            rm /etc/systemd/system/dependent.service /etc/systemd/network/* /etc/netplan/50-ib0.yaml
            netplan generate",
        );
    });
}
