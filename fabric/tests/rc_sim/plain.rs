//! A responder like `rdma_rxe`'s (kernel drivers/infiniband/sw/rxe/rxe_resp.c). It discards packets
//! ahead of the expected one, with one NAK for a gap until that packet comes, and acknowledges every
//! AckReq and every duplicate, or even every packet. Most adapters behave like this, so it tests our
//! requester for them.

use fabric::Psn;
use fabric::soft::rc::RcPacket;
use fabric::soft::wire::{Aeth, opcode};

const ACK: u8 = 0x1f;
const NAK_SEQUENCE_ERROR: u8 = 0x60;

/// The responder of one queue pair.
#[derive(Debug)]
pub struct Plain {
    expected: Psn,
    /// Acknowledges packets without AckReq, too.
    every: bool,
    msn: u32,
    nak_sent: bool,
    message: Vec<u8>,
}

/// The reaction to a packet.
#[derive(Debug, Default)]
pub struct Reaction {
    pub answer: Option<(Psn, Aeth)>,
    pub message: Option<Vec<u8>>,
}

impl Plain {
    pub fn new(expected: Psn, every: bool) -> Plain {
        Plain {
            expected,
            every,
            msn: 0,
            nak_sent: false,
            message: Vec::new(),
        }
    }

    pub fn receive(&mut self, packet: &RcPacket<'_>) -> Reaction {
        let mut reaction = Reaction::default();
        let ahead = packet.bth.psn().since(self.expected);
        if ahead > 0 {
            if !self.nak_sent {
                self.nak_sent = true;
                reaction.answer = Some((self.expected, self.aeth(NAK_SEQUENCE_ERROR)));
            }
            return reaction;
        }
        if ahead == 0 {
            self.nak_sent = false;
            self.expected = self.expected.advance(1);
            self.message.extend_from_slice(packet.payload);
            if packet.bth.opcode >= opcode::RC_SEND_LAST {
                self.msn = (self.msn + 1) & 0xff_ffff;
                reaction.message = Some(std::mem::take(&mut self.message));
            }
        }
        if ahead < 0 || self.every || packet.bth.ack_req() {
            let last = self.expected.advance(0xff_ffff);
            reaction.answer = Some((last, self.aeth(ACK)));
        }
        reaction
    }

    fn aeth(&self, syndrome: u8) -> Aeth {
        let [_, a, b, c] = self.msn.to_be_bytes();
        Aeth {
            syndrome,
            msn: [a, b, c],
        }
    }
}
