//! Failures of the host.

use super::*;
use crate::attribute::LidDirectory;
use crate::mac_table::MacEntry;
use crate::mad::MacEntries;

const FAILED: &str = "cannot apply settings of fe80::ee to virtual port 0: no queue pair is left";

#[test]
fn a_failure_of_the_host_is_refused_and_retried_by_the_next_set() {
    let mut w = World::new();
    w.host.cannot_configure = 1;
    let (code, _) = w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &forwarding());
    assert_eq!(code, status::INVALID);
    assert_eq!(w.events(), [FAILED]);
    assert_eq!(w.agent.owner(w.now), None, "a failed Set makes no owner");
    let info = w.info(0);
    assert_eq!((info.vesw_id, info.encap_slid), (0, Lid::NONE));
    assert_eq!(info.oper_state, ConfigState::DropAll);
    w.calls();
    // The manager reads that back and repeats the Set.
    let set = w.set(0, &forwarding());
    assert_eq!((set.vesw_id, set.oper_state), (2, ConfigState::Forwarding));
    assert!(
        w.calls()
            .contains(&Call::Configure(0, ConfigState::Forwarding))
    );
}

/// A port whose move to another switch fails keeps nothing of the first switch.
#[test]
fn a_later_failure_removes_table_and_directory() {
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
    assert_eq!(w.events(), [FAILED], "reported once");
    let info = w.info(0);
    assert_eq!((info.vesw_id, info.mac_tbl_digest), (0, 0));
    assert_eq!(info.eth_link_status, 2, "the interface exists");
    let known: LidDirectory = w.get(
        attribute::LID_DIRECTORY,
        0,
        &mad::LidDirectoryQuery { start: 0, count: 1 },
    );
    assert_eq!((known.digest, known.total), (0, 0));
}

/// A different value is the same refusal; a different field or manager is a new one.
#[test]
fn a_refusal_is_reported_once_for_each_manager_and_field() {
    let mut w = World::new();
    w.set(0, &forwarding());
    w.events();
    let bad = |change: &dyn Fn(&mut VeswPortInfo)| {
        let mut info = forwarding();
        change(&mut info);
        info
    };
    for n in 0..1000 {
        // As fast as Sets are accepted.
        w.at(u64::from(n) * 4);
        let wrong = bad(&|info| info.vesw_id = 4096 + n);
        w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &wrong);
        // Valid settings that are equal change nothing.
        w.set(0, &forwarding());
    }
    assert_eq!(w.events().len(), 1);
    let wrong = bad(&|info| info.eth_mtu = 9);
    w.ask(method::SET, attribute::VESW_PORT_INFO, 0, &wrong);
    assert_eq!(w.events().len(), 1);
    // Another manager, after the first one's lease.
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
fn reported_refusals_are_bounded() {
    let mut w = World::with(Config {
        may_create: true,
        ..config()
    });
    w.host.cannot_create = true;
    let mut reported = 0;
    for n in 0..20 {
        for index in 1..=255 {
            let header = w.header(method::SET, attribute::VESW_PORT_INFO, index);
            w.at(w.now.0 + 2);
            w.send(address(n, 0x40), &mad::write(&header, &forwarding()));
            reported += w.events().len();
        }
    }
    assert_eq!(reported, 256);
}
