use proptest::prelude::*;
use proto::{Psn, Qpn};
use zerocopy::{FromZeros, IntoBytes};

use super::*;

/// Every attribute.
const ALL: [u16; 11] = [
    REQ, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR,
];

fn bytes(message: Message<'_>) -> &[u8] {
    match message {
        Message::Req(m) => m.as_bytes(),
        Message::Mra(m) => m.as_bytes(),
        Message::Rej(m) => m.as_bytes(),
        Message::Rep(m) => m.as_bytes(),
        Message::Rtu(m) => m.as_bytes(),
        Message::Dreq(m) => m.as_bytes(),
        Message::Drep(m) => m.as_bytes(),
        Message::SidrReq(m) => m.as_bytes(),
        Message::SidrRep(m) => m.as_bytes(),
        Message::Lap(m) => m.as_bytes(),
        Message::Apr(m) => m.as_bytes(),
    }
}

/// The offset of a field, from a borrowed one.
macro_rules! at {
    ($type:ident . $field:ident) => {
        std::mem::offset_of!($type, $field)
    };
}

/// Checklist 95: the offsets of include/rdma/ibta_vol1_c12.h.
#[test]
fn fields_are_where_the_kernel_has_them() {
    assert_eq!(at!(Req.service_id), 8);
    assert_eq!(at!(Req.local_ca_guid), 16);
    assert_eq!(at!(Req.local_qkey), 28);
    assert_eq!(at!(Req.qpn), 32);
    assert_eq!(at!(Req.responder_resources), 35);
    assert_eq!(at!(Req.initiator_depth), 39);
    assert_eq!(at!(Req.response_and_type), 43);
    assert_eq!(at!(Req.psn), 44);
    assert_eq!(at!(Req.pkey), 48);
    assert_eq!(at!(Req.retries_and_srq), 51);
    assert_eq!(at!(Req.primary) + at!(Path.local_gid), 56);
    assert_eq!(at!(Req.primary) + at!(Path.remote_gid), 72);
    assert_eq!(at!(Req.primary) + at!(Path.flow_and_rate), 88);
    assert_eq!(at!(Req.primary) + at!(Path.hop_limit), 93);
    assert_eq!(at!(Req.primary) + at!(Path.timeout), 95);
    assert_eq!(at!(Req.alternate), 96);
    assert_eq!(at!(Req.private_data), 140);
    assert_eq!(at!(Rep.qpn), 12);
    assert_eq!(at!(Rep.psn), 20);
    assert_eq!(at!(Rep.responder_resources), 24);
    assert_eq!(at!(Rep.delay_and_failover), 26);
    assert_eq!(at!(Rep.local_ca_guid), 28);
    assert_eq!(at!(Rep.private_data), 36);
    assert_eq!(at!(Mra.timeout), 9);
    assert_eq!(at!(Rej.reason), 10);
    assert_eq!(at!(Rej.ari), 12);
    assert_eq!(at!(Rej.private_data), 84);
    assert_eq!(at!(Dreq.qpn), 8);
    assert_eq!(at!(SidrReq.service_id), 8);
    assert_eq!(at!(SidrRep.qpn), 8);
    assert_eq!(at!(SidrRep.service_id), 12);
    assert_eq!(at!(SidrRep.qkey), 20);
    assert_eq!(at!(SidrRep.private_data), 96);
    assert_eq!(at!(Lap.qpn), 12);
    assert_eq!(at!(Lap.local_gid), 24);
    assert_eq!(at!(Lap.traffic_class), 59);
    assert_eq!(at!(Lap.private_data), 64);
    assert_eq!(at!(Apr.info), 12);
    assert_eq!(at!(Apr.private_data), 84);
}

#[test]
fn fields_that_share_a_byte_leave_each_other_alone() {
    let mut req = Req::new_zeroed();
    req.set_remote_response_timeout(20);
    req.set_transport_service(3);
    req.set_flow_control(1);
    req.set_local_response_timeout(17);
    req.set_retry_count(7);
    req.set_path_mtu(5);
    req.set_rdc_exists(1);
    req.set_rnr_retry(6);
    req.set_max_cm_retries(15);
    req.set_srq(1);
    req.set_extended_transport(1);
    assert_eq!(
        (req.response_and_type, req.response_and_retry),
        (0xa7, 0x8f)
    );
    assert_eq!((req.mtu_and_rnr, req.retries_and_srq), (0x5e, 0xf9));
    req.set_transport_service(0);
    assert_eq!(req.response_and_type, 0xa1);
    // 33 is 100001 in binary: the low five bits are 1.
    req.set_local_response_timeout(33);
    assert_eq!(req.response_and_retry, 0x0f);
    let mut rep = Rep::new_zeroed();
    rep.set_target_ack_delay(15);
    rep.set_failover(2);
    rep.set_rnr_retry(7);
    rep.set_srq(1);
    assert_eq!((rep.delay_and_failover, rep.rnr_and_srq), (0x7c, 0xf0));
}

#[test]
fn attributes_that_are_no_message_are_none() {
    let data = [0; DATA_LEN];
    for attribute in [0, 1, REQ - 1, APR + 1, 0xffff] {
        assert_eq!(Message::parse(attribute, &data), None);
    }
}

proptest! {
    /// Any bytes are a valid message of any attribute and encode to the same bytes.
    #[test]
    fn messages_round_trip(data in prop::collection::vec(any::<u8>(), DATA_LEN)) {
        let data: [u8; DATA_LEN] = data.try_into().unwrap();
        for attribute in ALL {
            let message = Message::parse(attribute, &data).unwrap();
            prop_assert_eq!(bytes(message), &data);
        }
    }

    /// Getters return what setters set, for any old value. Setting the same value again changes
    /// nothing.
    #[test]
    fn what_is_set_is_read(
        before in any::<u8>(), value in any::<u8>(), number in any::<u32>()
    ) {
        let mut req = Req::read_from_bytes(&[before; DATA_LEN]).unwrap();
        req.set_local_response_timeout(value);
        prop_assert_eq!(req.local_response_timeout(), value & 31);
        prop_assert_eq!(req.retry_count(), before & 7);
        req.set_local_qpn(Qpn::new(number));
        prop_assert_eq!(req.local_qpn(), Qpn::new(number));
        prop_assert_eq!(req.responder_resources, before);
        req.set_starting_psn(Psn::new(number));
        prop_assert_eq!(req.starting_psn(), Psn::new(number));
        let mut rej = Rej::read_from_bytes(&[before; DATA_LEN]).unwrap();
        rej.set_rejected_bits(value);
        prop_assert_eq!(rej.rejected(), Answered::from_bits(value));
        rej.set_ari_length(value);
        prop_assert_eq!(rej.ari_length(), value & 0x7f);
    }
}
