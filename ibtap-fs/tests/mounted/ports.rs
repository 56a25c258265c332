//! The files of ports, as programs read them in `/sys/class/infiniband`.

use std::os::unix::fs::symlink;

use crate::fake::Fake;
use crate::lab::{Lab, eventually};
use crate::samples::interface;

/// Prints the metrics of node_exporter in its own network namespace. `$M` is the mount, beside a folder with the layout of sysfs.
const EXPORT: &str = "\
ip link set lo up
timeout 120 prometheus-node-exporter --path.sysfs=\"$M/../sys\" --collector.disable-defaults \
    --collector.infiniband --log.level=debug --web.listen-address=127.0.0.1:9100 >&2 &
exporter=$!
python3 - <<'END'
import time, urllib.request
for attempt in range(600):
    try:
        print(urllib.request.urlopen('http://127.0.0.1:9100/metrics', timeout=60).read().decode())
        break
    except OSError:
        time.sleep(0.1)
END
kill $exporter
";

#[test]
fn files_of_ports_are_listed_and_read() {
    let Some(lab) = Lab::new() else { return };
    let fake = Fake::start(&lab.socket(), vec![interface("ib0", 0x48)]);
    let fs = lab.mount();
    let mut root = fs.list(".");
    root.sort();
    assert_eq!(root, ["debug", "ib0", "infiniband"]);
    assert_eq!(fs.list("infiniband"), ["soft_eth0"]);
    let port = "infiniband/soft_eth0/ports/1";
    let mut listed = fs.list(port);
    listed.sort();
    let expected = [
        "cap_mask",
        "counters",
        "gid_attrs",
        "gids",
        "hw_counters",
        "lid",
        "lid_mask_count",
        "link_layer",
        "phys_state",
        "pkeys",
        "rate",
        "sm_lid",
        "sm_sl",
        "state",
    ];
    assert_eq!(listed, expected);
    assert_eq!(fs.list(&format!("{port}/pkeys")), ["0", "1"]);
    assert_eq!(fs.read(&format!("{port}/state")), "4: ACTIVE\n");
    assert_eq!(fs.read(&format!("{port}/pkeys/0")), "0xffff\n");
    let absent = format!("{port}/counters/port_xmit_wait");
    assert_eq!(fs.read_error(&absent), libc::ENOENT);
    assert_eq!(fs.read_error("infiniband/mlx5_0/fw_ver"), libc::ENOENT);
    assert_eq!(fs.read_error(port), libc::EISDIR);
    assert_eq!(fs.write(&format!("{port}/state"), "1\n"), Err(libc::EACCES));
    drop(fake);
    // The last answer of the daemon is shared for a moment.
    eventually("a directory without ports", || {
        fs.list("infiniband").is_empty().then_some(())
    });
    assert_eq!(fs.read_error(&format!("{port}/state")), libc::ENOENT);
}

/// The collector fails if a required file is missing or has another format.
#[test]
fn node_exporters_infiniband_collector_reads_the_ports() {
    let Some(lab) = Lab::new() else { return };
    let _fake = Fake::start(&lab.socket(), vec![interface("ib0", 0x48)]);
    let fs = lab.mount();
    let class = lab.root().with_file_name("sys").join("class");
    std::fs::create_dir_all(&class).unwrap();
    symlink(fs.path("infiniband"), class.join("infiniband")).unwrap();
    let done = fs.shell(&["unshare", "--net"], EXPORT);
    let text = String::from_utf8_lossy(&done.stdout);
    let labels = r#"device="soft_eth0",port="1""#;
    for line in [
        r#"node_scrape_collector_success{collector="infiniband"} 1"#.to_owned(),
        format!("node_infiniband_state_id{{{labels}}} 4"),
        format!("node_infiniband_physical_state_id{{{labels}}} 5"),
        // 10 Gb/s in bytes.
        format!("node_infiniband_rate_bytes_per_second{{{labels}}} 1.25e+09"),
        format!("node_infiniband_port_packets_received_total{{{labels}}} 12"),
        // Whole units of four bytes.
        format!("node_infiniband_port_data_transmitted_bytes_total{{{labels}}} 100"),
    ] {
        let found: Vec<_> = text.lines().filter(|l| l.contains("infiniband")).collect();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(
            found.contains(&line.as_str()),
            "{line}\n{found:#?}\n{errors}"
        );
    }
}
