//! Verifies the ICRC of received packets from the information that a socket has.
//!
//! The ICRC covers the IPv4 identification, but a UDP socket can neither set nor read it. An
//! unconnected socket with DF sends the identification 0, or 0, 1, 2, … in the segments of one
//! `UDP_SEGMENT` send. So the sender computes the ICRC of each segment with the segment's index, and
//! the receiver tries the index first. For peers with other identifications, the receiver solves for
//! the 16 unknown bits, since CRC is linear. IPv6 is the default and has no such field.

use super::icrc::{Ipv4IdSolver, Prefix};
use super::ud::{Path, Refusal};
use super::wire::{ICRC_LEN, ROCE_V2_PORT};

/// Bytes of a UDP header.
const UDP_HEADER_LEN: usize = 8;

/// Remembers common values of the packets of a run: the prefix and the first IPv4 identification.
#[derive(Debug, Default)]
pub struct IcrcCheck {
    /// The prefix of the previous packet, over IPv6.
    last: Option<(Path, usize, Prefix)>,
    /// The index of the packet in its run.
    place: u16,
    /// The identification of the run's first packet, as far as known.
    first_id: u16,
    solver: Ipv4IdSolver,
}

impl IcrcCheck {
    /// Starts a run of merged datagrams. Our own identifications start at 0.
    pub fn start_run(&mut self) {
        self.first_id = 0;
    }

    /// Sets the index of the next packet in its run.
    pub fn at(&mut self, k: usize) {
        self.place = k as u16;
    }

    /// Verifies the packet `bytes`, from BTH to ICRC.
    ///
    /// Over IPv4 the ICRC covers the identification, which a socket does not report. `verify` tries a
    /// likely identification, then solves for it; solving leaves 16 of the 32 bits as the check.
    ///
    /// # Errors
    /// [`Refusal::Icrc`]; [`Refusal::Length`] if the packet is shorter than an ICRC.
    pub fn verify(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
        let (covered, received) = bytes
            .split_last_chunk::<ICRC_LEN>()
            .ok_or(Refusal::Length)?;
        let udp_len = bytes.len() + UDP_HEADER_LEN;
        let passed = match (path.src.ipv4(), path.dst.ipv4()) {
            (Some(src), Some(dst)) => {
                let hint = self.first_id.wrapping_add(self.place);
                let (src, dst) = (src.octets(), dst.octets());
                let (port, len) = (path.src_port, udp_len as u16);
                let computed =
                    Prefix::ipv4(src, dst, port, ROCE_V2_PORT, len, hint).finish_received(covered);
                let id = self
                    .solver
                    .recover(computed, *received, covered.len(), hint);
                if let Some(id) = id {
                    self.first_id = id.wrapping_sub(self.place);
                }
                id.is_some()
            }
            _ => self.ipv6(path, udp_len).finish_received(covered) == *received,
        };
        if passed { Ok(()) } else { Err(Refusal::Icrc) }
    }

    fn ipv6(&mut self, path: &Path, udp_len: usize) -> Prefix {
        if let Some((p, len, prefix)) = &self.last
            && p == path
            && *len == udp_len
        {
            return *prefix;
        }
        let (src, dst) = (&path.src.0, &path.dst.0);
        let prefix = Prefix::ipv6(src, dst, path.src_port, ROCE_V2_PORT, udp_len as u16);
        self.last = Some((*path, udp_len, prefix));
        prefix
    }
}
