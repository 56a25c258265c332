//! 16B packets. An accepted packet is encoded again to the same bytes, except ignored fields; a frame comes
//! back unchanged.
//!
//! Input: a byte (profile in its lower bits, 128 lenient), then the packet; or with 64 set, a header and a
//! frame to encode.

use vnic::Lid;
use vnic::packet::{
    Arrival, HEADER_LEN, Header16B, PACKET_MAX, Prefix, Profile, Receiver, Refusal, Strictness,
    admit, decode, encode, icrc, packet_len, stored_icrc,
};

fn profile(flags: u8) -> Profile {
    match flags & 3 {
        0 => Profile::Wire0,
        1 => Profile::Mem,
        _ => Profile::WireSw32,
    }
}

fn read(flags: u8, packet: &[u8]) {
    let profile = profile(flags);
    let strictness = match flags & 0x80 {
        0 => Strictness::Strict,
        _ => Strictness::Lenient,
    };
    let decoded = match decode(packet, profile, strictness) {
        Ok(decoded) => decoded,
        Err(why) => return assert!(Refusal::ALL.contains(&why)),
    };
    let (header, frame) = (decoded.header, decoded.frame);
    assert_eq!(header.packet_len(), packet.len());
    assert_eq!(&packet[HEADER_LEN..HEADER_LEN + frame.len()], frame);
    if profile == Profile::WireSw32 {
        assert_eq!(icrc(packet), stored_icrc(packet));
    }
    let receiver = Receiver {
        lid: header.dlid,
        groups: &[Lid::MULTICAST],
        pkey: header.pkey.full(),
        vesw_id: header.vesw_id & 0xfff,
        forwarding: true,
        eth_mtu: 1500,
    };
    for arrival in [Arrival::Addressed, Arrival::Group] {
        if admit(&decoded, &receiver, arrival).is_ok() {
            assert!((60..=1518).contains(&frame.len()));
        }
    }
    // A frame with more padding than necessary has another length when it is encoded.
    if packet_len(frame.len()) == packet.len() {
        let mut out = vec![0; packet.len()];
        encode(&header, frame, profile, &mut out).expect("a frame that was in a packet");
        let again = decode(&out, profile, strictness).expect("a packet that was written");
        assert_eq!(again.header, header);
        assert!(again.frame.starts_with(frame));
    }
}

fn write(flags: u8, input: &[u8]) {
    let Some((header, frame)) = input.split_first_chunk::<HEADER_LEN>() else {
        return;
    };
    let header = Header16B::from_bytes(header);
    let profile = profile(flags);
    let mut out = vec![0x55; PACKET_MAX + 8];
    let len = encode(&header, frame, profile, &mut out).expect("a frame of up to 4096 bytes");
    assert_eq!(len, packet_len(frame.len()));
    assert!(out[len..].iter().all(|byte| *byte == 0x55));
    let mut in_place = vec![0xaa; len];
    in_place[HEADER_LEN..HEADER_LEN + frame.len()].copy_from_slice(frame);
    let wrapped = Prefix::new(&header).wrap(profile, frame.len(), &mut in_place);
    assert_eq!(wrapped, Ok(len));
    assert_eq!(in_place, out[..len]);
    if let Ok(decoded) = decode(&in_place, profile, Strictness::Lenient) {
        assert!(decoded.frame.starts_with(frame));
    }
}

pub fn run(data: &[u8]) {
    let Some((flags, rest)) = data.split_first() else {
        return;
    };
    match flags & 0x40 {
        0 => read(*flags, rest),
        _ => write(*flags, rest),
    }
}
