//! End-to-end credits: the number of messages that the peer has receive buffers for (IBA vol. 1,
//! 9.7.7.2; kernel drivers/infiniband/sw/rdmavt/rc.c, `credit_table`).
//!
//! Messages are numbered from 1 (SSN). A message may start if its number is at most one above the limit
//! (LSN): one message may always be sent, to probe.

/// Credits by code. Code 0x1f is not in the table: it disables credits.
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// The syndrome of positive acknowledgements of a queue pair with a shared receive queue: credits are
/// disabled.
pub const UNLIMITED: u8 = 0x1f;

/// The requester's knowledge of the peer's receive buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Credits {
    /// Not known yet; RNR NAKs report a lack of buffers.
    #[default]
    Unknown,
    /// Messages up to this number have a buffer; 24 bits.
    Limit(u32),
    /// The peer does not use credits; this never changes.
    Unlimited,
}

impl Credits {
    /// Handles an acknowledgement with credit `code` of all messages up to number `msn`.
    pub fn learn(&mut self, code: u8, msn: u32) {
        let Some(credits) = CREDITS.get(usize::from(code)) else {
            *self = Credits::Unlimited;
            return;
        };
        let limit = msn.wrapping_add(*credits) & 0xff_ffff;
        match *self {
            Credits::Unlimited => {}
            Credits::Limit(known) if since(limit, known) <= 0 => {}
            Credits::Unknown | Credits::Limit(_) => *self = Credits::Limit(limit),
        }
    }

    /// Number of messages that may start, from number `ssn` on.
    pub fn allowance(self, ssn: u32) -> u32 {
        match self {
            Credits::Unknown | Credits::Unlimited => u32::MAX,
            Credits::Limit(limit) => (since(limit, ssn) + 2).max(0).cast_unsigned(),
        }
    }
}

/// `a` minus `b`, modulo 2^24.
fn since(a: u32, b: u32) -> i32 {
    (a.wrapping_sub(b) << 8).cast_signed() >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_may_always_go_beyond_the_limit() {
        let mut credits = Credits::Unknown;
        assert_eq!(credits.allowance(1), u32::MAX);
        credits.learn(0, 1);
        assert_eq!(credits.allowance(2), 1);
        assert_eq!(credits.allowance(3), 0);
        credits.learn(5, 1);
        assert_eq!(credits.allowance(2), 7);
    }

    #[test]
    fn a_limit_never_goes_back_and_wraps() {
        let mut credits = Credits::Limit(0xff_fffe);
        credits.learn(2, 0xff_fffe);
        assert_eq!(credits, Credits::Limit(0));
        credits.learn(0, 0xff_ffff);
        assert_eq!(credits, Credits::Limit(0));
        assert_eq!(credits.allowance(0xff_ffff), 3);
    }

    #[test]
    fn unlimited_is_for_good() {
        let mut credits = Credits::Limit(3);
        credits.learn(UNLIMITED, 4);
        credits.learn(0, 5);
        assert_eq!(credits.allowance(100), u32::MAX);
    }
}
