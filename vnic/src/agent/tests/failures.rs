//! What the host cannot do.

use super::*;
use crate::attribute::LidDirectory;
use crate::mac_table::MacEntry;
use crate::mad::MacEntries;

const FAILED: &str = "cannot do what fe80::ee wants of virtual port 0: no queue pair is left";

#[test]
fn what_the_host_cannot_do_is_refused_held_as_not_set_and_done_by_the_next_set() {
    let mut w = World::new();
    w.host.cannot_configure = 1;
    let (code, _) = w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &forwarding());
    assert_eq!(code, status::INVALID);
    assert_eq!(w.events(), [FAILED]);
    assert_eq!(w.agent.owner(w.now), None, "it has got nothing of it");
    let info = w.info(0);
    assert_eq!((info.vesw_id, info.encap_slid), (0, Lid::NONE));
    assert_eq!(info.oper_state, ConfigState::DropAll);
    w.calls();
    // A manager sees that, and wants the same again.
    let set = w.set(0, &forwarding());
    assert_eq!((set.vesw_id, set.oper_state), (2, ConfigState::Forwarding));
    assert!(
        w.calls()
            .contains(&Call::Configure(0, ConfigState::Forwarding))
    );
}

/// A port that was on a switch, and cannot be on another one, has nothing left of the first.
#[test]
fn one_that_fails_later_has_neither_table_nor_directory_any_more() {
    let mut w = World::new();
    w.set(0, &forwarding());
    let page = MacEntries {
        offset: 0,
        digest: 7,
        entries: vec![MacEntry {
            mac: [0x52, 0x54, 0, 0, 0, 9],
            mask: [0; 6],
            dlid_sd: 6 << 8,
        }],
    };
    w.ask(method::SET, attribute::VESW_MAC_ENTRIES, 0, &page);
    let directory = LidDirectory {
        start: 0,
        total: 1,
        digest: 8,
        entries: vec![(
            Lid::new(6),
            NodeAddress {
                gid: gid(6),
                qpn: Qpn::new(6),
            },
        )],
    };
    w.ask(method::SET, attribute::LID_DIRECTORY, 0, &directory);
    assert_eq!(w.info(0).mac_tbl_digest, 7);
    w.host.cannot_configure = 2;
    w.events();
    let other = VeswPortInfo {
        vesw_id: 3,
        ..forwarding()
    };
    for _ in 0..2 {
        let (code, _) = w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &other);
        assert_eq!(code, status::INVALID);
    }
    assert_eq!(w.events(), [FAILED], "told once");
    let info = w.info(0);
    assert_eq!((info.vesw_id, info.mac_tbl_digest), (0, 0));
    assert_eq!(info.eth_link_status, 2, "the interface is there");
    let known: LidDirectory = w.get(
        attribute::LID_DIRECTORY,
        0,
        &mad::LidDirectoryQuery { start: 0, count: 1 },
    );
    assert_eq!((known.digest, known.total), (0, 0));
}

/// Another value each time is the same refusal; another field, and another manager, is another one.
#[test]
fn a_refusal_is_told_once_for_each_manager_and_field() {
    let mut w = World::new();
    w.set(0, &forwarding());
    w.events();
    let bad = |change: &dyn Fn(&mut VeswPortInfo)| {
        let mut info = forwarding();
        change(&mut info);
        info
    };
    for n in 0..1000 {
        let wrong = bad(&|info| info.vesw_id = 4096 + n);
        w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &wrong);
        // What is right and the same as before changes nothing.
        w.set(0, &forwarding());
    }
    assert_eq!(w.events().len(), 1);
    let wrong = bad(&|info| info.eth_mtu = 9);
    w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &wrong);
    assert_eq!(w.events().len(), 1);
    // Somebody else, once the first one is gone.
    w.at(100_000);
    for n in 0..10 {
        let header = w.header(method::SET, attribute::VESW_PORT_INFO, 0);
        let wrong = bad(&|info| info.vesw_id = 5000 + n);
        w.send(OTHER, &mad::write(&header, &wrong));
    }
    assert_eq!(w.events().len(), 1);
    assert_eq!(w.agent.counts().invalid, 1011);
}

#[test]
fn what_is_told_of_refusals_is_bounded() {
    let mut w = World::with(Config {
        may_create: true,
        ..config()
    });
    w.host.cannot_create = true;
    let mut told = 0;
    for n in 0..20 {
        for index in 1..=255 {
            let header = w.header(method::SET, attribute::VESW_PORT_INFO, index);
            w.send(address(n, 0x40), &mad::write(&header, &forwarding()));
            told += w.events().len();
        }
    }
    assert_eq!(told, 256);
}
