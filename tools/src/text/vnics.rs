//! VNICs.

use control::api::{ConfigState, VnicInfo, VnicMac, VnicMember, VnicStats};

use super::{counters, qualified, seconds};
use control::aligned_text::{columns, labelled};

/// `ibtap show`: the block of a VNIC, with labels as for IPoIB interfaces.
pub fn show_vnic(vnic: &VnicInfo) -> String {
    let name = qualified(&vnic.name, vnic.netns.as_deref());
    format!("{name}\n{}", labelled(&properties(vnic)))
}

fn properties(v: &VnicInfo) -> Vec<(&'static str, String)> {
    let mut lines = vec![("Kind", "VNIC".to_owned()), ("State", v.state.to_string())];
    if let Some(reason) = &v.reason {
        lines.push(("Reason", reason.clone()));
    }
    let on_off = |on| if on { "on" } else { "off" };
    let yes_no = |yes| if yes { "yes" } else { "no" };
    let manager = match (v.managed, &v.manager) {
        (false, _) => "none (static configuration)".to_owned(),
        (true, None) => "none yet".to_owned(),
        (true, Some(manager)) => format!("{} qpn {}", manager.gid, manager.qpn),
    };
    let vesw = match v.vesw {
        0 => "none yet".to_owned(),
        vesw => vesw.to_string(),
    };
    let state = match v.oper_state == v.config_state {
        true => v.oper_state.to_string(),
        false => format!("{} (configured: {})", v.oper_state, v.config_state),
    };
    let port = match &v.underlay {
        Some(underlay) => format!("{} on {underlay}", v.port),
        None => v.port.clone(),
    };
    lines.extend([
        ("Interface", if v.up { "up" } else { "down" }.into()),
        ("Carrier", on_off(v.carrier).into()),
        ("Manager", manager),
        ("Switch", vesw),
        ("Fabric", v.fabric_id.to_string()),
        ("Switch port", state),
        ("Number", v.index.to_string()),
        ("LID", v.lid.to_string()),
        ("P_Key", v.pkey.to_string()),
        ("Q_Key", v.qkey.to_string()),
        ("QPN", v.qpn.to_string()),
        ("Port", port),
        ("Link layer", v.link_layer.to_string()),
        ("Port GID", v.gid.to_string()),
        ("MAC", v.mac.to_string()),
    ]);
    if v.base_mac != v.mac && v.base_mac.0 != [0; 6] {
        lines.push(("Assigned MAC", v.base_mac.to_string()));
    }
    lines.push(("Multicast LID", v.multicast_lid.to_string()));
    if let Some(group) = &v.group {
        lines.push(("Group", group.to_string()));
    }
    if !v.default_lids.is_empty() {
        let lids: Vec<_> = v.default_lids.iter().map(ToString::to_string).collect();
        lines.push(("Default ports", lids.join(",")));
    }
    lines.push(("Index", v.ifindex.to_string()));
    if let Some(netns) = &v.netns {
        lines.push(("Namespace", netns.clone()));
    }
    let learning = match v.learning {
        true => format!("{} s, up to {} addresses", v.ageing, v.mac_limit),
        false => "off".to_owned(),
    };
    let closed = if v.closed { ", closed list" } else { "" };
    lines.extend([
        ("MTU", format!("{} of {}", v.mtu, v.mtu_max)),
        ("Link MTU", v.link_mtu.to_string()),
        ("Learning", learning),
        ("MAC table", format!("{} entries", v.table_entries)),
        ("Members", format!("{} listed{closed}", v.peers)),
        ("Queues", v.queues.to_string()),
        ("Persistent", yes_no(v.persist).into()),
        (
            "Daemon",
            format!("ibtapd {} (process {})", v.version, v.pid),
        ),
    ]);
    lines
}

/// `ibtap stats`: the counters of the kernel's driver, and other counters that are not zero.
pub fn vnic_stats(stats: &VnicStats, zeros: bool) -> String {
    let mut text = format!("{}\n", qualified(&stats.name, stats.netns.as_deref()));
    let driver = stats.driver.0.iter();
    let driver: Vec<_> = driver.map(|(n, v)| (n.as_str(), v.to_string())).collect();
    text += &labelled(&driver);
    text += &counters("port", &stats.port, zeros);
    text += &counters("device", &stats.device, zeros);
    text += &counters("management", &stats.management, zeros);
    for worker in &stats.workers {
        let title = format!("{} worker {}", worker.port, worker.worker);
        text += &counters(&title, &worker.counters, zeros);
    }
    text
}

/// `ibtap vnic`: a table.
pub fn vnics(vnics: &[VnicInfo]) -> String {
    let rows = vnics.iter().map(|v| {
        let state = match (&v.reason, v.oper_state) {
            (_, ConfigState::Forwarding) => "forwarding".to_owned(),
            (Some(reason), _) => format!("off: {reason}"),
            (None, _) if !v.up => "off: the interface is down".to_owned(),
            (None, state) => state.to_string(),
        };
        [
            qualified(&v.name, v.netns.as_deref()),
            v.port.clone(),
            v.index.to_string(),
            match v.vesw {
                0 => "-".to_owned(),
                vesw => vesw.to_string(),
            },
            v.lid.to_string(),
            v.mac.to_string(),
            v.mtu.to_string(),
            state,
        ]
    });
    columns(
        [
            "NAME", "PORT", "NUMBER", "VESW", "LID", "MAC", "MTU", "STATE",
        ],
        rows,
    )
}

/// `ibtap vnic mac`: a table.
pub fn vnic_macs(macs: &[VnicMac]) -> String {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = macs.iter().map(|m| {
        [
            m.mac.to_string(),
            m.source.to_string(),
            or_none(m.index.map(|index| index.to_string())),
            or_none(m.idle_ms.map(seconds)),
            m.lid.to_string(),
            or_none(m.qpn.map(|qpn| qpn.to_string())),
            or_none(m.gid.map(|gid| gid.to_string())),
        ]
    });
    columns(
        ["MAC", "SOURCE", "PLACE", "IDLE", "LID", "QPN", "GID"],
        rows,
    )
}

/// `ibtap vnic members`: a table.
pub fn vnic_members(members: &[VnicMember]) -> String {
    let rows = members.iter().map(|m| {
        [
            m.lid.to_string(),
            if m.listed { "listed" } else { "learned" }.to_owned(),
            m.qpn.map_or("-".to_owned(), |qpn| qpn.to_string()),
            m.gid.to_string(),
        ]
    });
    columns(["LID", "SOURCE", "QPN", "GID"], rows)
}

#[cfg(test)]
pub mod tests {
    use control::api::{FabricAddress, InterfaceKind, LinkLayer, MacSource, PortState};

    use super::*;

    /// A VNIC that forwards.
    pub fn vnic() -> VnicInfo {
        VnicInfo {
            name: "vnic0".into(),
            kind: InterfaceKind::Vnic,
            ifindex: 9,
            port: "soft/eth0".into(),
            underlay: Some("eth0".into()),
            link_layer: LinkLayer::Ethernet,
            state: PortState::Active,
            reason: None,
            up: true,
            carrier: true,
            managed: true,
            manager: Some(FabricAddress {
                gid: "fe80::1".parse().unwrap(),
                qpn: fabric::Qpn::new(0x4c),
            }),
            index: 0,
            vesw: 2,
            fabric_id: 0x301,
            lid: vnic::Lid::new(5),
            config_state: ConfigState::Forwarding,
            oper_state: ConfigState::Forwarding,
            pkey: fabric::PKey::new(0x8001),
            qkey: fabric::QKey::new(0x0b1b_0002),
            qpn: fabric::Qpn::new(0x4d),
            gid: "fe80::2".parse().unwrap(),
            mac: "06:2c:00:05:00:00".parse().unwrap(),
            base_mac: "06:2c:00:05:00:00".parse().unwrap(),
            multicast_lid: vnic::Lid::new(0xf0_0002),
            group: Some("ff12:5645:8001:301:2::2".parse().unwrap()),
            default_lids: vec![],
            mtu: 1500,
            mtu_max: 4053,
            link_mtu: 4096,
            learning: true,
            ageing: 300,
            mac_limit: 131_072,
            table_entries: 3,
            table_digest: 1,
            peers: 2,
            closed: true,
            netns: None,
            queues: 2,
            persist: false,
            pid: 4711,
            version: "0.1.0".into(),
        }
    }

    #[test]
    fn a_vnic_is_shown_with_its_addresses_and_state() {
        let text = show_vnic(&vnic());
        assert!(text.starts_with("vnic0\n    Kind:"), "{text}");
        for line in [
            "State:         ACTIVE",
            "Manager:       fe80::1 qpn 0x00004c",
            "Switch:        2",
            "Switch port:   forwarding",
            "LID:           0x000005",
            "Q_Key:         0x0b1b0002",
            "MTU:           1500 of 4053",
            "Learning:      300 s, up to 131072 addresses",
            "Members:       2 listed, closed list",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(!text.contains("Assigned MAC") && !text.contains("Reason"));
        let waiting = VnicInfo {
            vesw: 0,
            manager: None,
            oper_state: ConfigState::DropAll,
            mac: "02:00:00:00:00:09".parse().unwrap(),
            reason: Some("it waits".into()),
            netns: Some("blue".into()),
            ..vnic()
        };
        let text = show_vnic(&waiting);
        for line in [
            "blue/vnic0\n    Kind: ",
            "Reason:        it waits",
            "Switch:        none yet",
            "Switch port:   drop-all (configured: forwarding)",
            "Assigned MAC:  06:2c:00:05:00:00",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[test]
    fn vnics_are_a_table() {
        let down = VnicInfo {
            name: "vnic1".into(),
            netns: Some("blue".into()),
            vesw: 0,
            up: false,
            oper_state: ConfigState::DropAll,
            ..vnic()
        };
        assert_eq!(
            vnics(&[vnic(), down]),
            "NAME        PORT       NUMBER  VESW  LID       MAC                MTU   STATE\n\
             vnic0       soft/eth0  0       2     0x000005  06:2c:00:05:00:00  1500  forwarding\n\
             blue/vnic1  soft/eth0  0       -     0x000005  06:2c:00:05:00:00  1500  off: the interface is \
             down\n"
        );
        assert_eq!(vnics(&[]), "");
    }

    #[test]
    fn addresses_are_a_table() {
        let learned = VnicMac {
            mac: "52:54:00:12:34:56".parse().unwrap(),
            lid: vnic::Lid::new(7),
            source: MacSource::Learned,
            index: None,
            idle_ms: Some(1500),
            gid: Some("fe80::7".parse().unwrap()),
            qpn: Some(fabric::Qpn::new(0x123)),
        };
        let of_table = VnicMac {
            source: MacSource::Table,
            index: Some(12),
            idle_ms: None,
            gid: None,
            qpn: None,
            ..learned.clone()
        };
        assert_eq!(
            vnic_macs(&[learned, of_table]),
            "MAC                SOURCE   PLACE  IDLE  LID       QPN       GID\n\
             52:54:00:12:34:56  learned  -      1.5s  0x000007  0x000123  fe80::7\n\
             52:54:00:12:34:56  table    12     -     0x000007  -         -\n"
        );
    }

    #[test]
    fn members_are_a_table() {
        let member = VnicMember {
            lid: vnic::Lid::new(7),
            gid: "fe80::7".parse().unwrap(),
            qpn: None,
            listed: true,
        };
        assert_eq!(
            vnic_members(&[member]),
            "LID       SOURCE  QPN  GID\n0x000007  listed  -    fe80::7\n"
        );
    }

    #[test]
    fn the_drivers_counters_are_shown_always() {
        let stats = VnicStats {
            name: "vnic0".into(),
            driver: [("rx_packets", 0), ("tx_packets", 4)].into_iter().collect(),
            port: [("rx_bad_l2", 0), ("tx_flooded", 2)].into_iter().collect(),
            management: [("not_manager", 1)].into_iter().collect(),
            ..VnicStats::default()
        };
        let text = vnic_stats(&stats, false);
        assert_eq!(
            text,
            "vnic0\n    rx_packets: 0\n    tx_packets: 4\n  port\n    tx_flooded: 2\n  management\n    \
             not_manager: 1\n"
        );
        assert!(vnic_stats(&stats, true).contains("rx_bad_l2"));
    }
}
