//! The requests of the kernel's IPoIB and of its client of subnet administration: captures `01-datagram` and
//! `class-port-info`.

use super::*;
use crate::cm::tests::kernel::captured;
use crate::mad::sa::McMemberRecord;

/// A request of the port with LID 0x10 or 0x11, and its transaction id.
fn kernels(number: usize) -> ([u8; MAD_LEN], u64) {
    let (_, _, mad) = captured("kernel-ipoib/01-datagram.pcap", number);
    (mad, header(&mad).transaction_id.get())
}

fn gid(text: &str) -> Gid {
    text.parse().unwrap()
}

fn port(lid: u8) -> Gid {
    gid(&format!("fe80::99:ff:fe00:{lid:x}"))
}

#[test]
fn joins_and_paths_are_asked_for_as_the_kernel_asks() {
    let create = |mgid: &str, join_state| {
        Request::join_or_create(&group_join(gid(mgid), port(0x10), join_state))
    };
    let broadcast = gid("ff12:401b:ffff::ffff:ffff");
    for (number, ours) in [
        (
            1,
            Request::join(broadcast, port(0x10), PKey::DEFAULT, JoinState::FULL),
        ),
        (4, create("ff12:401b:ffff::1", JoinState::FULL)),
        (
            54,
            create(
                "ff12:601b:ffff::1:ff00:11",
                JoinState::SEND_ONLY_FULL_MEMBER,
            ),
        ),
        (34, Request::path(port(0x11), port(0x10), PKey::DEFAULT, 0)),
    ] {
        let (theirs, tid) = kernels(number);
        assert_eq!(ours.datagram(tid), theirs, "packet {number}");
    }
}

/// The kernel asks when its port gets a subnet manager.
#[test]
fn the_abilities_are_asked_for_as_the_kernel_asks() {
    let (_, _, theirs) = captured("../subnet-administration/class-port-info.pcap", 1);
    let tid = header(&theirs).transaction_id.get();
    assert_eq!(Request::class_port_info().datagram(tid), theirs);
}

/// The kernel sends the whole record; the component mask says which fields are asked for.
#[test]
fn a_membership_is_ended_as_the_kernel_ends_it() {
    let (theirs, tid) = kernels(67);
    let group = gid("ff12:401b:ffff::1");
    let ours = Request::leave(group, port(0x10), JoinState::FULL).datagram(tid);
    assert_eq!(ours[..56], theirs[..56]);
    let asked = |mad: &[u8; MAD_LEN]| {
        let record = McMemberRecord::parse(&mad[56..]).unwrap();
        (record.mgid, record.port_gid, record.join_state)
    };
    assert_eq!(asked(&ours), asked(&theirs));
}
