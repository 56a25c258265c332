use proptest::prelude::*;
use proto::{IbMtu, Lid};

use super::*;

/// Reads `bytes` as a record of every type; what is written reads as the same record.
fn round_trip<R: Record + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Some(record) = R::parse(bytes) else {
        assert!(bytes.len() < R::LEN);
        return;
    };
    let mut again = Vec::new();
    record.append(&mut again);
    assert_eq!(again.len(), R::LEN);
    assert_eq!(R::parse(&again), Some(record));
}

proptest! {
    #[test]
    fn records_of_any_bytes_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        round_trip::<McMemberRecord>(&bytes);
        round_trip::<PathRecord>(&bytes);
        round_trip::<ServiceRecord>(&bytes);
        round_trip::<NodeRecord>(&bytes);
        round_trip::<PortInfoRecord>(&bytes);
        round_trip::<ClassPortInfo>(&bytes);
        round_trip::<InformInfo>(&bytes);
        round_trip::<InformInfoRecord>(&bytes);
        round_trip::<Notice>(&bytes);
    }

    /// Records without reserved fields are the same bytes again.
    #[test]
    fn bytes_of_a_service_round_trip(mut bytes in prop::collection::vec(any::<u8>(), 176)) {
        bytes[26..28].fill(0);
        let record = ServiceRecord::parse(&bytes).unwrap();
        prop_assert_eq!(&record.write()[..], &bytes[..]);
    }

    #[test]
    fn bytes_of_a_path_round_trip(mut bytes in prop::collection::vec(any::<u8>(), 64)) {
        bytes[44] &= 0x8f;
        bytes[58..].fill(0);
        let record = PathRecord::parse(&bytes).unwrap();
        prop_assert_eq!(&record.write()[..], &bytes[..]);
    }

    #[test]
    fn bytes_of_a_membership_round_trip(mut bytes in prop::collection::vec(any::<u8>(), 52)) {
        bytes[49] &= 0x80;
        bytes[50..].fill(0);
        let record = McMemberRecord::parse(&bytes).unwrap();
        prop_assert_eq!(&record.write()[..], &bytes[..]);
    }
}

#[test]
fn masks_are_those_of_the_kernel() {
    assert_eq!(mc_member::JOIN, 0x1_0083);
    assert_eq!(mc_member::CREATE, 0x1_73f7);
    assert_eq!(mc_member::LEAVE, 0x1_0003);
    assert_eq!(path::IPOIB, 0x340c);
    assert_eq!(inform_info::SUBSCRIPTION, 0x11f2);
}

#[test]
fn codes_have_names() {
    let rates = [2, 3, 11, 16, 63].map(|code| Rate(code).to_string());
    let expected = [
        "2.5 Gbit/s",
        "10 Gbit/s",
        "14 Gbit/s",
        "100 Gbit/s",
        "rate code 63",
    ];
    assert_eq!(rates, expected);
    assert_eq!(Selected::exactly(4).mtu(), Some(IbMtu::B2048));
    assert_eq!(Selected::exactly(6).mtu(), None);
    assert_eq!(packet_lifetime(18).as_millis(), 1073);
    assert_eq!(packet_lifetime(63), packet_lifetime(255));
    assert_eq!(JoinState(9).to_string(), "FullMember,SendOnlyFullMember");
    assert_eq!(JoinState::NONE.to_string(), "none");
}

#[test]
fn a_notice_names_the_gid_of_traps_64_to_67() {
    let gid = "ff12:401b:ffff::1".parse().unwrap();
    let issuer = "fe80::1".parse().unwrap();
    let notice = Notice::of_gid(trap::GROUP_DELETED, gid, Lid(1), issuer);
    let bytes = notice.write();
    assert_eq!(bytes[..10], [0x83, 0, 0, 4, 0, 67, 0, 1, 0, 0]);
    assert_eq!((&bytes[10..16], &bytes[16..32]), (&[0; 6][..], &gid.0[..]));
    assert_eq!(Notice::parse(&bytes).unwrap().gid(), Some(gid));
    assert_eq!(notice.to_string(), "group ff12:401b:ffff::1 was deleted");
    let other = Notice {
        trap: 128,
        ..notice
    };
    assert_eq!((other.gid(), other.to_string()), (None, "trap 128".into()));
}
