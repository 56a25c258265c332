//! Processing of each received packet by a worker.

use proto::{Instant, Qpn};

use super::counts::Counts;
use super::engine::Engine;
use super::icrc_check::IcrcCheck;
use super::mailbox::Mailbox;
use super::snapshot::Table;
use super::steering;
use super::ud::{self, Delivery, Path, Refusal};
use crate::mad::{MAD_LEN, class};
use crate::worker::UdReceived;

/// Maximum number of datagrams in one batch: every slot full of small packets, and copies of multicast
/// packets for several endpoints.
pub(super) const DELIVERIES: usize = 4096;

/// The parts of a worker that process received packets.
pub(super) struct Reception<'w> {
    pub now: Instant,
    pub worker: usize,
    pub table: &'w Table,
    pub engine: &'w mut Engine,
    pub icrc: &'w mut IcrcCheck,
    pub received: &'w mut Vec<UdReceived>,
    pub counts: &'w mut Counts,
    pub mailboxes: &'w [Mailbox],
}

impl Reception<'_> {
    /// Processes a packet, from BTH to ICRC, at offset `base` in the memory of the batch. A packet of
    /// another worker is passed on, unless it was already (`handed_on`).
    pub fn packet(&mut self, path: &Path, bytes: &[u8], base: usize, handed_on: bool) {
        if self.table.is_forged(path) {
            self.counts.refused[Refusal::ForgedOwn as usize] += 1;
            return;
        }
        if self.mailboxes.len() > 1
            && !handed_on
            && let Some(owner) = steering::owner(bytes, self.mailboxes.len())
            && owner != self.worker
        {
            self.hand_on(owner, path, bytes);
            return;
        }
        let connected = bytes
            .first()
            .is_some_and(|&opcode| steering::is_connected(opcode));
        let outcome = if connected {
            self.connected(path, bytes, base)
        } else {
            self.datagram(path, bytes, base)
        };
        if let Err(refusal) = outcome {
            self.counts.refused[refusal as usize] += 1;
        }
    }

    fn hand_on(&mut self, owner: usize, path: &Path, bytes: &[u8]) {
        let taken = self.mailboxes[owner].put(*path, bytes);
        self.counts.packets.rx_handed_on += u64::from(taken);
        if !taken {
            self.counts.refused[Refusal::NoRoom as usize] += 1;
        }
    }

    fn connected(&mut self, path: &Path, bytes: &[u8], base: usize) -> Result<(), Refusal> {
        let Reception {
            now, engine, icrc, ..
        } = self;
        engine.receive(*now, path, bytes, base, || icrc.verify(path, bytes))
    }

    fn datagram(&mut self, path: &Path, bytes: &[u8], base: usize) -> Result<(), Refusal> {
        let Reception {
            now,
            table,
            engine,
            icrc,
            received,
            counts,
            ..
        } = self;
        let mut full = false;
        ud::receive(table, path, icrc, bytes, |d| {
            if d.to.is_some() {
                full |= !note(received, counts, path, base, d);
            } else {
                let taken = management(&d, bytes).is_some_and(|mad| match mad[1] {
                    class::COM_MGT => {
                        engine.mad(*now, path.src, d.pkey, mad);
                        true
                    }
                    class::SUBN_ADM => table.administrator_of(path.src).is_some_and(|a| a.put(mad)),
                    _ => false,
                });
                counts.packets.rx_mads_unhandled += u64::from(!taken);
            }
        })?;
        if full { Err(Refusal::NoRoom) } else { Ok(()) }
    }
}

/// The management datagram in a packet from QP1 to QP1.
fn management<'p>(d: &Delivery<'_>, bytes: &'p [u8]) -> Option<&'p [u8; MAD_LEN]> {
    let mad: &[u8; MAD_LEN] = bytes.get(d.payload.clone())?.try_into().ok()?;
    (d.src_qpn == Qpn::GSI).then_some(mad)
}

/// Records a delivery; false if the batch is full.
fn note(
    received: &mut Vec<UdReceived>,
    counts: &mut Counts,
    path: &Path,
    base: usize,
    d: Delivery<'_>,
) -> bool {
    let Some(endpoint) = d.to else {
        return true;
    };
    if received.len() == DELIVERIES {
        return false;
    }
    counts.packets.rx_packets += 1;
    counts.packets.rx_bytes += d.payload.len() as u64;
    counts.packets.rx_multicast += u64::from(d.multicast);
    received.push(UdReceived {
        endpoint: endpoint.id,
        src_qpn: d.src_qpn,
        src_gid: path.src,
        has_src_gid: true,
        dst_gid: path.dst,
        multicast: d.multicast,
        pkey: d.pkey,
        checksum_ok: false,
        range: base + d.payload.start..base + d.payload.end,
    });
    true
}
