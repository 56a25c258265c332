//! Received packets of reliable connections: checks and their order (kernel
//! drivers/infiniband/sw/rxe/rxe_recv.c: the ICRC comes last), and the delivery of payloads.

use proto::Instant;
use zerocopy::FromBytes;

use super::super::qp::State;
use super::super::rc::RcPacket;
use super::super::ud::{Path, Refusal};
use super::super::wire::{Aeth, Bth, ICRC_LEN, Packet, opcode};
use super::Engine;
use crate::worker::{Batch, Part, RcReceived};

/// Parses a packet. SEND and ACK have a fast path. Other opcodes are never served; only their lengths
/// are checked.
fn parse(bytes: &[u8], at: usize) -> Result<RcPacket<'_>, Refusal> {
    let (bth, rest) = Bth::read_from_prefix(bytes).map_err(|_| Refusal::Length)?;
    if bth.tver() != 0 {
        return Err(Refusal::Version);
    }
    let tail = usize::from(bth.pad_count()) + ICRC_LEN;
    let body_len = rest.len().checked_sub(tail).ok_or(Refusal::Length)?;
    // The ICRC does not distinguish such a length from a wrong PadCnt.
    if !bytes.len().is_multiple_of(4) {
        return Err(Refusal::Length);
    }
    let mut body = &rest[..body_len];
    let (mut aeth, mut immediate) = (None, None);
    match bth.opcode {
        opcode::RC_SEND_FIRST
        | opcode::RC_SEND_MIDDLE
        | opcode::RC_SEND_LAST
        | opcode::RC_SEND_ONLY => {}
        opcode::RC_SEND_LAST_IMM | opcode::RC_SEND_ONLY_IMM => {
            let (data, payload) = body.split_first_chunk().ok_or(Refusal::Length)?;
            (immediate, body) = (Some(*data), payload);
        }
        opcode::RC_ACKNOWLEDGE => {
            let (header, _) = Aeth::read_from_prefix(body).map_err(|_| Refusal::Length)?;
            (aeth, body) = (Some(header), &[]);
        }
        _ => {
            let packet = Packet::parse(bytes).map_err(|e| match e {
                super::super::wire::Malformed::Opcode(_) => Refusal::Opcode,
                _ => Refusal::Length,
            })?;
            (aeth, body) = (packet.extended.aeth, packet.payload);
        }
    }
    // The payload is the last part of the body.
    let offset = size_of::<Bth>() + body_len - body.len();
    Ok(RcPacket {
        bth,
        aeth,
        immediate,
        payload: body,
        at: at + offset,
    })
}

impl Engine {
    /// Ends the previous batch: posts its receive buffers again.
    pub fn begin_batch(&mut self) {
        for message in self.shared.inbox.messages.drain(..) {
            self.shared.srq.post(message.buffer);
        }
        if self.shared.srq.available() >= 2 * self.srq_limit {
            self.shared.srq.arm(self.srq_limit);
        }
        self.shared.inbox.parts.clear();
        self.received.clear();
    }

    /// Takes one packet, from BTH to ICRC, at offset `at` in the memory of the batch. `verify` checks
    /// the ICRC, after all other checks.
    ///
    /// # Errors
    /// The check that failed.
    pub fn receive(
        &mut self,
        now: Instant,
        path: &Path,
        bytes: &[u8],
        at: usize,
        verify: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let packet = parse(bytes, at)?;
        let place = self.table.by_qpn(packet.bth.dest_qp());
        let place = place.ok_or(Refusal::UnknownQpn)?;
        let c = self.table.get_mut(place).ok_or(Refusal::UnknownQpn)?;
        if !matches!(c.qp.state(), State::Rtr | State::Rts | State::Sqd) {
            return Err(Refusal::State);
        }
        if path.src != c.peer {
            return Err(Refusal::NotPeer);
        }
        if path.dst != c.local {
            return Err(Refusal::NotOurGid);
        }
        if !c.partition.pkey.matches(packet.bth.pkey()) {
            return Err(Refusal::PKey);
        }
        verify()?;
        c.qp.receive(now, &mut self.shared, &packet);
        if std::mem::take(&mut c.awaits_rtu) {
            self.cm.heard(c.cm);
        }
        if !std::mem::replace(&mut c.touched, true) {
            self.touched.push(place);
        }
        for message in &self.shared.inbox.messages[self.received.len()..] {
            c.used = now;
            self.received.push(RcReceived {
                endpoint: c.endpoint,
                connection: c.id,
                immediate: message.immediate,
                len: message.len,
                parts: message.parts.clone(),
            });
        }
        Ok(())
    }

    /// Ends the batch. Its memory will be used again, so parts of incomplete messages are copied.
    pub fn end_batch(&mut self, now: Instant, memory: &[u8]) {
        let mut touched = std::mem::take(&mut self.touched);
        for place in touched.drain(..) {
            let Some(c) = self.table.get_mut(place) else {
                continue;
            };
            c.touched = false;
            c.qp.end_batch(&mut self.shared, memory);
            self.make_ready(place);
            self.settle(now, place);
        }
        self.touched = touched;
        self.reclaim_buffers(now);
        self.drain_cm(now);
    }

    /// The batch in `memory`, with its messages and without datagrams; to be called after
    /// [`Engine::end_batch`].
    pub fn batch<'a>(&'a self, memory: &'a [u8]) -> Batch<'a> {
        let (messages, kept, parts) = self.received();
        Batch::new(memory, &[]).with_messages(kept, messages, parts)
    }

    /// The messages of the batch, the memory of messages that came in several batches, and the list of
    /// parts.
    pub(crate) fn received(&self) -> (&[RcReceived], &[u8], &[Part]) {
        (
            &self.received,
            self.shared.srq.memory(),
            &self.shared.inbox.parts,
        )
    }
}
