//! DHCP messages and router advertisements as Ethernet frames, independent of the daemon's code, so that both
//! cannot have the same error.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Offset of the IP packet.
pub const ETHERNET: usize = 14;

/// The xid of every message of [`discover`].
const XID: [u8; 4] = [0x12, 0x34, 0x56, 0x78];

/// A DISCOVER of a client with this hardware address: a whole BOOTP message (RFC 951), the magic cookie and
/// options (RFC 2131).
pub fn discover(mac: [u8; 6]) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0];
    message.extend(XID);
    message.resize(28, 0);
    message.extend(mac);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, 1, 55, 2, 1, 3, 255]);
    message
}

/// A broadcast frame with a UDP datagram in IPv4 from 0.0.0.0, with correct checksums.
pub fn udp4(mac: [u8; 6], source_port: u16, port: u16, message: &[u8]) -> Vec<u8> {
    let (source, destination) = (Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST);
    let length = (8 + message.len()) as u16;
    let mut udp = Vec::new();
    for field in [source_port, port, length, 0] {
        udp.extend(field.to_be_bytes());
    }
    udp.extend(message);
    let mut pseudo = [source.octets(), destination.octets()].concat();
    pseudo.extend([0, 17]);
    pseudo.extend(length.to_be_bytes());
    let sum = checksum(&[&pseudo[..], &udp].concat());
    udp[6..8].copy_from_slice(&sum.to_be_bytes());

    let mut ip = vec![0x45, 0];
    ip.extend((20 + length).to_be_bytes());
    ip.extend([0, 1, 0, 0, 64, 17, 0, 0]);
    ip.extend(source.octets());
    ip.extend(destination.octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    [&[0xff; 6][..], &mac, &[8, 0], &ip, &udp].concat()
}

/// Updates the checksum of the IPv4 header.
pub fn fix_ipv4_header(frame: &mut [u8]) {
    frame[ETHERNET + 10..ETHERNET + 12].fill(0);
    let sum = checksum(&frame[ETHERNET..ETHERNET + 20]);
    frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
}

/// A router advertisement to all nodes with these options (RFC 4861, section 4.2).
pub fn advertisement(mac: [u8; 6], source: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut message = vec![134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    message.extend(options);
    let length = (message.len() as u16).to_be_bytes();
    let addresses = [source.octets(), all.octets()].concat();
    let sum = checksum(&[&addresses[..], &[0, 0], &length, &[0, 0, 0, 58], &message].concat());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let to = [0x33, 0x33, 0, 0, 0, 1];
    let head = [0x60, 0, 0, 0, length[0], length[1], 58, 255];
    [&to[..], &mac, &[0x86, 0xdd], &head, &addresses, &message].concat()
}

/// The MTU option (RFC 4861, section 4.6.4).
pub fn mtu_option(mtu: u32) -> Vec<u8> {
    [&[5, 1, 0, 0][..], &mtu.to_be_bytes()].concat()
}

/// An RSA signature option with an arbitrary signature (RFC 3971, section 5.2).
pub fn signature_option() -> Vec<u8> {
    let mut option = vec![12, 5];
    option.extend(2..40);
    option
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let mut sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
