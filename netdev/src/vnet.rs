//! The virtio-net header of frames on a TAP with `IFF_VNET_HDR`: the checksum to complete and the segments
//! to cut (virtio 1.2, 5.1.6; kernel include/uapi/linux/virtio_net.h).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ip;

/// Bytes of [`VnetHeader`], for `TUNSETVNETHDRSZ`.
pub const VNET_HEADER_LEN: usize = size_of::<VnetHeader>();

/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: sum from `csum_start` to the end, and write the complement at
/// `csum_start + csum_offset`. The field already has the sum of the pseudo header.
pub const FLAG_NEEDS_CSUM: u8 = 1;
/// `VIRTIO_NET_HDR_F_DATA_VALID`: the checksum was verified.
pub const FLAG_DATA_VALID: u8 = 2;

/// `VIRTIO_NET_HDR_GSO_NONE`: an ordinary frame.
pub const GSO_NONE: u8 = 0;
/// `VIRTIO_NET_HDR_GSO_TCPV4`.
pub const GSO_TCPV4: u8 = 1;
/// `VIRTIO_NET_HDR_GSO_TCPV6`.
pub const GSO_TCPV6: u8 = 4;
/// `VIRTIO_NET_HDR_GSO_UDP_L4`: UDP datagrams of equal length (since Linux 6.2).
pub const GSO_UDP_L4: u8 = 5;
/// `VIRTIO_NET_HDR_GSO_ECN`: a TCP frame with CWR; combined with the type.
pub const GSO_ECN: u8 = 0x80;

/// `struct virtio_net_hdr_v1`: 12 bytes, the numbers little-endian (`TUNSETVNETLE`).
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    Debug,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct VnetHeader {
    /// `FLAG_*`.
    pub flags: u8,
    /// `GSO_*`.
    pub gso_type: u8,
    /// Bytes of all headers, Ethernet included. Only a hint: the kernel writes the length of the linear
    /// part of its buffer.
    pub hdr_len: U16,
    /// Payload bytes of every packet except the last.
    pub gso_size: U16,
    /// Start of the summed bytes, in bytes from the start of the frame.
    pub csum_start: U16,
    /// Offset of the checksum field from `csum_start`, in bytes.
    pub csum_offset: U16,
    /// For merged receive buffers; 0 on a TAP.
    pub num_buffers: U16,
}

const _: () = assert!(VNET_HEADER_LEN == 12);

/// A checksum to be completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartialChecksum {
    /// Start of the summed bytes, from the start of the frame.
    pub start: usize,
    /// Offset of the checksum field, from the start of the frame.
    pub field: usize,
}

/// The packets to cut from a large frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GsoKind {
    /// TCP over IPv4.
    TcpV4,
    /// TCP over IPv6.
    TcpV6,
    /// UDP over IPv4 or IPv6.
    UdpL4,
}

/// The offload that a frame requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offload {
    /// A single packet, perhaps with a partial checksum.
    Whole(Option<PartialChecksum>),
    /// A large frame.
    Cut {
        /// The protocol.
        kind: GsoKind,
        /// Payload bytes of every packet except the last; never 0.
        size: usize,
        /// The partial checksum in the header; Linux always sets it.
        checksum: Option<PartialChecksum>,
    },
}

/// Invalid values in the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VnetError {
    /// A type that was not offered to the kernel, such as `VIRTIO_NET_HDR_GSO_UDP` or a tunnel's.
    #[error("the virtio-net header has the unknown segmentation type {0:#04x}")]
    UnknownGsoType(u8),
    /// The segment size is 0.
    #[error("the virtio-net header requests segments of 0 bytes")]
    ZeroGsoSize,
}

impl VnetHeader {
    /// The requested offload. Offsets are not yet compared with a frame.
    ///
    /// # Errors
    /// See [`VnetError`].
    #[inline]
    pub fn offload(&self) -> Result<Offload, VnetError> {
        let checksum = self.partial_checksum();
        let kind = match self.gso_type {
            GSO_NONE => return Ok(Offload::Whole(checksum)),
            t if t & !GSO_ECN == GSO_TCPV4 => GsoKind::TcpV4,
            t if t & !GSO_ECN == GSO_TCPV6 => GsoKind::TcpV6,
            GSO_UDP_L4 => GsoKind::UdpL4,
            unknown => return Err(VnetError::UnknownGsoType(unknown)),
        };
        match usize::from(self.gso_size.get()) {
            0 => Err(VnetError::ZeroGsoSize),
            size => Ok(Offload::Cut {
                kind,
                size,
                checksum,
            }),
        }
    }

    /// The header for a frame without offloads to a TAP: an Ethernet header and the packet that starts with
    /// `packet`. It contains the length of the headers. Without that length a TAP allocates contiguous
    /// memory for the whole frame, which is slow for 64 KiB and fails with fragmented memory. With only
    /// headers in the linear part, the kernel's TCP can also join payloads of neighbours
    /// (`skb_try_coalesce`).
    #[inline]
    pub fn whole(packet: &[u8]) -> VnetHeader {
        let headers = ip::ETHERNET_HEADER_LEN + ip::headers_len(packet);
        VnetHeader {
            // Headers of more than 65535 bytes are only possible in theory; they get no hint.
            hdr_len: U16::new(u16::try_from(headers).unwrap_or(0)),
            ..VnetHeader::default()
        }
    }

    fn partial_checksum(&self) -> Option<PartialChecksum> {
        let start = usize::from(self.csum_start.get());
        (self.flags & FLAG_NEEDS_CSUM != 0).then(|| PartialChecksum {
            start,
            field: start + usize::from(self.csum_offset.get()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Model;

    #[test]
    fn layout_is_that_of_virtio_net_hdr_v1() {
        let bytes = [1, 0x81, 0x42, 0, 0x34, 0x12, 34, 0, 16, 0, 2, 0];
        let header = VnetHeader::read_from_bytes(&bytes).unwrap();
        assert_eq!(header.hdr_len.get(), 0x42);
        assert_eq!(header.gso_size.get(), 0x1234);
        assert_eq!(header.num_buffers.get(), 2);
        assert_eq!(header.as_bytes(), bytes);
        assert_eq!(
            header.offload(),
            Ok(Offload::Cut {
                kind: GsoKind::TcpV4,
                size: 0x1234,
                checksum: Some(PartialChecksum {
                    start: 34,
                    field: 50
                }),
            })
        );
    }

    #[test]
    fn every_type_byte_is_known_or_refused() {
        for gso_type in 0..=u8::MAX {
            let header = VnetHeader {
                gso_type,
                gso_size: U16::new(1),
                ..VnetHeader::default()
            };
            let known = matches!(gso_type, 0 | 1 | 4 | 5 | 0x81 | 0x84);
            match header.offload() {
                Ok(_) => assert!(known, "{gso_type:#x} was taken"),
                Err(e) => assert!(!known && e == VnetError::UnknownGsoType(gso_type)),
            }
        }
    }

    #[test]
    fn a_whole_frame_names_its_headers_and_never_more_than_is_there() {
        let len = |packet: &[u8]| VnetHeader::whole(packet).hdr_len.get();
        for model in [
            Model::tcp_v4(9000),
            Model::tcp_v6(9000),
            Model::udp_v4(9000),
            Model::udp_v6(9000),
        ] {
            let packet = model.packet();
            assert_eq!(usize::from(len(&packet)), 14 + model.headers_len());
            for cut in 0..packet.len().min(200) {
                assert!(usize::from(len(&packet[..cut])) <= 14 + cut);
            }
        }
        assert_eq!(len(&[0x12; 60]), 14);
    }

    #[test]
    fn a_segment_size_of_zero_is_refused() {
        let header = VnetHeader {
            gso_type: GSO_TCPV6,
            ..VnetHeader::default()
        };
        assert_eq!(header.offload(), Err(VnetError::ZeroGsoSize));
    }

    #[test]
    fn without_the_flag_the_checksum_fields_mean_nothing() {
        let header = VnetHeader {
            flags: FLAG_DATA_VALID,
            csum_start: U16::new(9),
            ..VnetHeader::default()
        };
        assert_eq!(header.offload(), Ok(Offload::Whole(None)));
    }
}
