//! Handmade Ethernet frames, for packets that no kernel sends.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::{Background, Station};

/// An Ethernet address.
pub type Mac = [u8; 6];

/// Broadcast.
pub const BROADCAST: Mac = [0xff; 6];

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Parses "52:54:00:09:00:01".
pub fn mac(text: &str) -> Mac {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"))
        .collect();
    bytes.try_into().expect("six bytes")
}

/// An Ethernet header without payload.
pub fn ethernet(destination: Mac, source: Mac, kind: u16) -> Vec<u8> {
    let mut frame = destination.to_vec();
    frame.extend(source);
    frame.extend(kind.to_be_bytes());
    frame
}

/// A broadcast ARP request (RFC 826).
pub fn arp_request(sender: (Mac, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet(BROADCAST, sender.0, ARP);
    frame.extend([0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(sender.0);
    frame.extend(sender.1.octets());
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame
}

fn ipv4(protocol: u8, ttl: u8, source: Ipv4Addr, destination: Ipv4Addr, rest: &[u8]) -> Vec<u8> {
    let length = (20 + rest.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, ttl, protocol, 0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    packet.extend(rest);
    packet
}

/// A UDP datagram over IPv4 without a checksum, ports 9 (discard).
pub fn udp4(ends: (Mac, Mac), source: Ipv4Addr, destination: Ipv4Addr, data: &[u8]) -> Vec<u8> {
    let mut udp = vec![0, 9, 0, 9];
    udp.extend(((8 + data.len()) as u16).to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(data);
    let mut frame = ethernet(ends.1, ends.0, IPV4);
    frame.extend(ipv4(17, 64, source, destination, &udp));
    frame
}

/// An IGMPv2 membership report (RFC 2236).
pub fn igmp_report(from: Mac, source: Ipv4Addr, group: Ipv4Addr) -> Vec<u8> {
    let mut igmp = vec![0x16, 0, 0, 0];
    igmp.extend(group.octets());
    let sum = checksum(&igmp);
    igmp[2..4].copy_from_slice(&sum);
    let [_, b, c, d] = group.octets();
    let mut frame = ethernet([1, 0, 0x5e, b & 0x7f, c, d], from, IPV4);
    frame.extend(ipv4(2, 1, source, group, &igmp));
    frame
}

/// An IGMPv3 report of joins to many groups (RFC 3376, 4.2).
pub fn igmp_report_of_many(from: Mac, source: Ipv4Addr, groups: &[Ipv4Addr]) -> Vec<u8> {
    let mut igmp = vec![0x22, 0, 0, 0, 0, 0];
    igmp.extend((groups.len() as u16).to_be_bytes());
    for group in groups {
        igmp.extend([4, 0, 0, 0]);
        igmp.extend(group.octets());
    }
    let sum = checksum(&igmp);
    igmp[2..4].copy_from_slice(&sum);
    let mut frame = ethernet([1, 0, 0x5e, 0, 0, 22], from, IPV4);
    frame.extend(ipv4(2, 1, source, Ipv4Addr::new(224, 0, 0, 22), &igmp));
    frame
}

/// An MLDv1 membership report behind a router alert (RFC 2710).
pub fn mld_report(from: Mac, source: Ipv6Addr, group: Ipv6Addr) -> Vec<u8> {
    let mut mld = vec![131, 0, 0, 0, 0, 0, 0, 0];
    mld.extend(group.octets());
    let sum = icmpv6_checksum(source, group, &mld);
    mld[2..4].copy_from_slice(&sum);
    let mut rest = vec![58, 0, 5, 2, 0, 0, 1, 0];
    rest.extend(mld);
    ipv6(from, 0, 1, source, group, &rest)
}

/// A neighbour solicitation for `target` with these options (RFC 4861, 4.3), to its solicited-node group.
pub fn solicitation(from: Mac, source: Ipv6Addr, target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let low = [0xff00 | u16::from(a), u16::from(b) << 8 | u16::from(c)];
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, low[0], low[1]);
    let mut nd = vec![135, 0, 0, 0, 0, 0, 0, 0];
    nd.extend(target.octets());
    nd.extend(options);
    let sum = icmpv6_checksum(source, group, &nd);
    nd[2..4].copy_from_slice(&sum);
    ipv6(from, 58, 255, source, group, &nd)
}

fn ipv6(from: Mac, next: u8, hops: u8, source: Ipv6Addr, group: Ipv6Addr, rest: &[u8]) -> Vec<u8> {
    let [.., a, b, c, d] = group.octets();
    let mut frame = ethernet([0x33, 0x33, a, b, c, d], from, IPV6);
    frame.extend([0x60, 0, 0, 0]);
    frame.extend((rest.len() as u16).to_be_bytes());
    frame.extend([next, hops]);
    frame.extend(source.octets());
    frame.extend(group.octets());
    frame.extend(rest);
    frame
}

/// The checksum of a message whose checksum field is zero (RFC 4443, 2.3).
pub fn icmpv6_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> [u8; 2] {
    let mut bytes = source.octets().to_vec();
    bytes.extend(destination.octets());
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, 58]);
    bytes.extend(message);
    checksum(&bytes)
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Frames of a storm in a second.
pub const STORM: u32 = 10_000;

impl Station {
    /// The queue of `ib0` holds a second of a storm. What it loses while the machine runs other programs, the daemon does
    /// not drop.
    pub fn queue_holds_a_second(&self) {
        self.ok(&format!("ip link set ib0 txqueuelen {STORM}"));
    }

    /// Sends frames on an interface at a rate per second.
    pub fn send_frames<'a>(
        &self,
        interface: &str,
        per_second: u32,
        frames: impl IntoIterator<Item = &'a Vec<u8>>,
    ) {
        let mut sending = self.start_frames(interface, per_second, frames);
        let status = sending.0.wait().expect("a child");
        assert!(status.success(), "frames.py: {status}");
    }

    /// The same in the background.
    pub fn start_frames<'a>(
        &self,
        interface: &str,
        per_second: u32,
        frames: impl IntoIterator<Item = &'a Vec<u8>>,
    ) -> Background {
        let mut file = tempfile::tempfile().expect("a scratch file");
        let mut bytes = Vec::new();
        for frame in frames {
            bytes.extend((frame.len() as u16).to_be_bytes());
            bytes.extend(frame);
        }
        file.write_all(&bytes).expect("a scratch file");
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).expect("a scratch file");
        self.start_script(interface, per_second, file)
    }

    fn start_script(&self, interface: &str, per_second: u32, frames: File) -> Background {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/lab/frames.py");
        let child = self
            .command("python3")
            .arg(script)
            .args([interface, &per_second.to_string()])
            .stdin(frames)
            .spawn()
            .expect("python3 is installed");
        Background(child)
    }
}
