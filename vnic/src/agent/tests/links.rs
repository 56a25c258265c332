//! Link states, address lists, and their traps.

use super::*;
use crate::mad::{MacList, MacListQuery};

const LINK: TrapKind = TrapKind::LinkStatus;

fn vectors() -> serde_json::Value {
    let text = include_str!("../../../../tests/data/opa_vnic_vectors.json");
    serde_json::from_str(text).unwrap()
}

#[test]
fn s01_no_traps_without_a_trap_lid() {
    let mut w = World::new();
    w.set(0, &forwarding());
    for up in [false, true] {
        w.agent.set_admin_up(w.now, 0, up);
    }
    assert_eq!(w.traps(), []);
    // Traps that were not sent do not count against the limit.
    w.set_class_port_info();
    for n in 0..5 {
        w.agent.set_admin_up(w.now, 0, n % 2 == 1);
    }
    assert_eq!(w.traps(), [LINK; 5]);
    assert_eq!(w.agent.counts().traps_unwanted, 4);
}

#[test]
fn without_an_address_traps_go_to_the_owner() {
    let mut w = World::new();
    let info = ClassPortInfo::default().with_trap(Gid::UNSPECIFIED, Qpn::new(0), 1);
    w.ask(method::SET, attribute::CLASS_PORT_INFO, 0, &info);
    w.agent.set_admin_up(w.now, 0, false);
    assert_eq!(w.traps(), [LINK]);
    w.at(15_000);
    w.agent.set_admin_up(w.now, 0, true);
    assert_eq!(w.traps(), []);
}

#[test]
fn traps_go_to_no_group() {
    let mut w = World::new();
    let info = ClassPortInfo::default().with_trap(Gid([0xff; 16]), Qpn::MULTICAST, 1);
    w.ask(method::SET, attribute::CLASS_PORT_INFO, 0, &info);
    let before = w.agent.counts().traps_unwanted;
    w.agent.set_admin_up(w.now, 0, false);
    assert_eq!(w.traps(), []);
    assert_eq!(w.agent.counts().traps_unwanted, before + 1);
}

#[test]
fn s03_the_traps_of_a_port_are_those_of_the_vectors() {
    let mut w = World::forwarding();
    // The window of the earlier traps has ended.
    let begin = 10_000;
    let mut up = false;
    let vectors = vectors();
    for vector in vectors["trap_rate_vectors"].as_array().unwrap() {
        let ms = (vector["t_s"].as_f64().unwrap() * 1000.0).round() as u64;
        w.at(begin + ms).agent.set_admin_up(Time(begin + ms), 0, up);
        up = !up;
        let sent = !w.traps().is_empty();
        assert_eq!(sent, vector["sent"].as_bool().unwrap(), "{ms} ms");
    }
    assert_eq!(w.agent.counts().traps_suppressed, 2);
    let events = w.events();
    let suppressed = events.iter().filter(|e| e.contains("too often")).count();
    assert_eq!(suppressed, 1);
}

#[test]
fn suppressed_traps_follow_at_the_end_of_the_window() {
    let mut w = World::forwarding();
    // All announcements were sent before.
    for now in [1_000, 3_000, 8_000, 10_000] {
        w.at(now).traps();
    }
    for n in 0..8 {
        w.agent.set_admin_up(w.now, 0, n % 2 == 1);
    }
    let guest = [0x52, 0x54, 0, 0, 0, 9];
    w.agent.set_unicast_macs(w.now, 0, vec![guest]);
    assert_eq!(w.traps(), [LINK; 5]);
    assert_eq!(w.agent.next_deadline(), Some(Time(11_074)));
    assert_eq!(w.at(11_073).traps(), []);
    assert_eq!(w.at(11_074).traps(), [TrapKind::UcastMacs, LINK]);
    assert_eq!(w.agent.next_deadline(), None);
    // They count in the new window.
    for n in 0..4 {
        w.agent.set_admin_up(w.now, 0, n % 2 == 1);
    }
    assert_eq!(w.traps(), [LINK; 3]);
    assert_eq!(w.agent.counts().traps_suppressed, 5);
}

#[test]
fn s03_each_port_has_a_separate_limit() {
    let mut w = World::forwarding();
    w.at(10_000);
    assert!(w.agent.add_port(w.now, 1, new_port(1)));
    for n in 0..8 {
        w.agent.set_admin_up(w.now, 0, n % 2 == 1);
        w.agent.set_admin_up(w.now, 1, n % 2 == 0);
    }
    assert_eq!(w.traps().len(), 10);
}

#[test]
fn s02_a_trap_identifies_port_and_switch() {
    let mut w = World::forwarding();
    w.agent.set_admin_up(w.now, 0, false);
    let trap = w.agent.poll_transmit(w.now).unwrap();
    let mad = Mad::parse(&trap.mad).unwrap();
    assert_eq!((trap.mad.len(), mad.header.modifier.get()), (272, 0));
    let notice = Notice {
        issuer_lid: Lid::new(5),
        fabric_id: 1,
        vesw_id: 2,
        port_num: 7,
        opa_port: 1,
        index: 0,
        kind: LINK,
    };
    assert_eq!(mad.attribute(), Ok(notice));
    let tid = mad.header.transaction_id.get();
    w.agent.set_admin_up(w.now, 0, true);
    let next = w.agent.poll_transmit(w.now).unwrap();
    let next = Mad::parse(&next.mad).unwrap().header.transaction_id.get();
    assert_eq!(next, tid + 1);
}

#[test]
fn s05_administrative_changes_send_traps_also_without_forwarding() {
    let mut w = World::forwarding();
    w.set(
        0,
        &VeswPortInfo {
            config_state: ConfigState::DropAll,
            ..forwarding()
        },
    );
    assert_eq!(w.traps(), [LINK]);
    for up in [false, true] {
        w.agent.set_admin_up(w.now, 0, up);
        assert_eq!(w.traps(), [LINK]);
        assert_eq!(w.info(0).eth_link_status, 2);
    }
    w.agent.set_admin_up(w.now, 0, true);
    assert_eq!(w.traps(), []);
}

#[test]
fn s06_s07_s19_an_administrators_address_is_reported_and_stays() {
    let mut w = World::forwarding();
    let before = w.info(0).uc_macs_gen_count;
    let own = [2, 0, 0, 0, 0, 0x99];
    w.agent.set_interface_mac(w.now, 0, own);
    assert_eq!(w.traps(), [TrapKind::UcastMacs]);
    assert_eq!(w.info(0).uc_macs_gen_count, before + 1);
    let list: MacList = w.get(attribute::IFACE_UCAST_MACS, 0, &MacListQuery::default());
    assert_eq!(list.macs, [own]);
    // S19: the manager's address did not change, so the administrator's stays.
    w.set(
        0,
        &VeswPortInfo {
            port_num: 9,
            ..forwarding()
        },
    );
    assert!(!w.calls().iter().any(|call| matches!(call, Call::Mac(..))));
    // S07: a new address of the manager replaces it, without a trap.
    let new = [6, 0, 0, 6, 0, 0];
    w.set(
        0,
        &VeswPortInfo {
            base_mac_addr: new,
            ..forwarding()
        },
    );
    assert_eq!(w.calls()[0], Call::Mac(0, new));
    w.agent.set_interface_mac(w.now, 0, new);
    assert_eq!(w.traps(), []);
    let list: MacList = w.get(attribute::IFACE_UCAST_MACS, 0, &MacListQuery::default());
    assert_eq!((list.total, list.gen_count), (0, before + 2));
}

#[test]
fn an_interface_without_address_reports_none() {
    let mut w = World::forwarding();
    w.agent.set_interface_mac(w.now, 0, [2, 0, 0, 0, 0, 0x99]);
    assert_eq!(w.traps(), [TrapKind::UcastMacs]);
    w.agent.set_interface_mac(w.now, 0, [0; 6]);
    assert_eq!(w.traps(), [TrapKind::UcastMacs]);
    let list: MacList = w.get(attribute::IFACE_UCAST_MACS, 0, &MacListQuery::default());
    assert_eq!(list.total, 0);
}

#[test]
fn s08_an_equal_list_sends_no_trap() {
    let mut w = World::forwarding();
    let (a, b) = ([0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]);
    w.agent.set_multicast_macs(w.now, 0, vec![a, b]);
    assert_eq!(w.traps(), [TrapKind::McastMacs]);
    w.agent.set_multicast_macs(w.now, 0, vec![b, a, b]);
    assert_eq!(w.traps(), []);
    w.agent.set_multicast_macs(w.now, 0, vec![b]);
    assert_eq!(w.traps(), [TrapKind::McastMacs]);
    let info = w.info(0);
    // Each list has a separate change count.
    assert_eq!((info.mc_macs_gen_count, info.uc_macs_gen_count), (2, 2));
}

#[test]
fn gen_counts_wrap_at_16_bits() {
    let mut w = World::forwarding();
    for n in 0..0x1_0000_u32 {
        let [_, _, a, b] = n.to_be_bytes();
        w.agent
            .set_multicast_macs(w.now, 0, vec![[1, 0, 0x5e, 0, a, b]]);
    }
    assert_eq!(w.info(0).mc_macs_gen_count, 0);
}

#[test]
fn s09_digests_of_lists_are_those_of_the_vectors() {
    let vectors = vectors();
    for vector in vectors["mac_list_digest_vectors"].as_array().unwrap() {
        let macs: Vec<Mac> = vector["macs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mac| {
                let [_, _, bytes @ ..] = u64::from_str_radix(mac.as_str().unwrap(), 16)
                    .unwrap()
                    .to_be_bytes();
                bytes
            })
            .collect();
        let digest = format!("{:#010x}", list_digest(&macs));
        assert_eq!(vector["digest_u32"], digest.as_str());
    }
}

#[test]
fn s10_s11_a_port_forwards_if_manager_administrator_and_fabric_agree() {
    for state in [
        ConfigState::Nop,
        ConfigState::DropAll,
        ConfigState::Init,
        ConfigState::Forwarding,
    ] {
        for admin in [false, true] {
            for fabric in [false, true] {
                let mut w = World::new();
                w.set(
                    0,
                    &VeswPortInfo {
                        config_state: state,
                        ..forwarding()
                    },
                );
                w.agent.set_admin_up(w.now, 0, admin);
                w.agent.set_fabric_up(w.now, fabric);
                let info = w.info(0);
                let all = state == ConfigState::Forwarding && admin && fabric;
                assert_eq!(info.oper_state == ConfigState::Forwarding, all);
                assert_eq!(info.eth_link_status, if all { 1 } else { 2 });
            }
        }
    }
}

#[test]
fn a_port_that_is_not_ready_does_not_forward() {
    let mut w = World::forwarding();
    w.agent.set_ready(w.now, 0, false);
    assert_eq!((w.traps(), w.info(0).eth_link_status), (vec![LINK], 2));
    w.agent.set_ready(w.now, 0, false);
    w.agent.set_ready(w.now, 0, true);
    assert_eq!((w.traps(), w.info(0).eth_link_status), (vec![LINK], 1));
}

#[test]
fn s16_the_limit_of_the_mtu_is_never_below_68() {
    let limit = |eth_mtu| {
        mtu_limit(&VeswPortInfo {
            eth_mtu,
            ..VeswPortInfo::default()
        })
    };
    assert_eq!([0, 67, 68, 9000].map(limit), [68, 68, 68, 9000]);
}

#[test]
fn s17_the_fabric_takes_all_ports_down_and_up() {
    let mut w = World::forwarding();
    assert!(w.agent.add_port(w.now, 1, new_port(1)));
    w.agent.set_admin_up(w.now, 1, true);
    w.set(
        1,
        &VeswPortInfo {
            encap_slid: Lid::new(6),
            ..forwarding()
        },
    );
    w.traps();
    w.at(10_000).agent.set_fabric_up(Time(10_000), false);
    assert_eq!(w.traps(), [LINK; 2]);
    assert_eq!([0, 1].map(|n| w.info(n).eth_link_status), [2, 2]);
    w.agent.set_fabric_up(w.now, false);
    assert_eq!(w.traps(), []);
    w.agent.set_fabric_up(w.now, true);
    assert_eq!(w.traps(), [LINK; 2]);
}

#[test]
fn s18_equal_states_change_nothing() {
    let mut w = World::forwarding();
    w.set(0, &forwarding());
    assert_eq!((w.calls(), w.traps()), (vec![], vec![]));
}

#[test]
fn the_longest_list_is_bounded() {
    let mut w = World::forwarding();
    let many = (0..100_000_u32).map(|n| {
        let [_, a, b, c] = n.to_be_bytes();
        [2, 0, 0, a, b, c]
    });
    w.agent.set_unicast_macs(w.now, 0, many.collect());
    let list: MacList = w.get(attribute::IFACE_UCAST_MACS, 0, &MacListQuery::default());
    assert_eq!((list.total, list.macs.len()), (4096, 333));
}
