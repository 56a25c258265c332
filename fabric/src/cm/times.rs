//! Times: what we ask for, and what we make of what others ask for.

use std::time::Duration;

/// How long we and our peer may take to answer: 268 ms, of which [`milliseconds`] makes 256.
pub const RESPONSE_TIMEOUT: u8 = 16;

/// How often we repeat a request, and our peer a reply.
pub const MAX_CM_RETRIES: u8 = 7;

/// How often a DisconnectRequest is repeated. A peer that is there answers one; one that is not
/// keeps the queue pair's number busy meanwhile.
pub const DREQ_RETRIES: u8 = 5;

/// How long our user may take to answer a request or a reply. It answers at once, or not at all.
pub const ANSWER: Duration = Duration::from_secs(10);

/// A packet's life on the path, as Linux has it in PathRecords: the code below
/// [`LOCAL_ACK_TIMEOUT`], 67 ms.
pub const PACKET_LIFE: u8 = LOCAL_ACK_TIMEOUT - 1;

/// How long a queue pair waits for an acknowledgement: 134 ms.
pub const LOCAL_ACK_TIMEOUT: u8 = 15;

/// How long we take to acknowledge: 4.2 ms, above the millisecond for which acknowledgements are
/// saved up.
pub const TARGET_ACK_DELAY: u8 = 10;

/// How often a queue pair sends again, without and with RNR NAKs.
pub const RETRY_COUNT: u8 = 7;

/// The longest time in which a peer may have us wait for its acknowledgements: 1 s.
pub const ACK_TIMEOUT_MAX: u8 = 18;

/// The longest time for which an MRA has us wait: 67 s, which Linux's rdma_cm asks for.
pub const SERVICE_TIMEOUT_MAX: u8 = 24;

/// Between two ConnectReplies: from 64 ms, or a code of 0 would make a flood, to 4 s, which is
/// Linux's own.
const REPLY_TIMEOUTS: std::ops::RangeInclusive<u8> = 14..=20;

/// A time code as Linux takes it (drivers/infiniband/core/cm.c, `cm_convert_to_ms`): a little short
/// of 4.096 µs times two to the power of it, and at least 1 ms.
pub const fn milliseconds(code: u8) -> Duration {
    let shift = code.saturating_sub(8);
    Duration::from_millis(1 << if shift > 23 { 23 } else { shift })
}

/// Between two ConnectRequests, and between two DisconnectRequests: 384 ms, the answer's time and a
/// packet's life for each way (drivers/infiniband/core/cm.c, `ib_send_cm_req`).
pub const fn request_interval() -> Duration {
    milliseconds(PACKET_LIFE)
        .saturating_mul(2)
        .saturating_add(milliseconds(RESPONSE_TIMEOUT))
}

/// Between two ConnectReplies, for what the request says of its sender's time to answer.
pub fn reply_interval(local_response_timeout: u8) -> Duration {
    let (min, max) = (*REPLY_TIMEOUTS.start(), *REPLY_TIMEOUTS.end());
    milliseconds(local_response_timeout.clamp(min, max))
}

/// How long a connection's numbers rest: what is on its way then has arrived, or never will.
pub const fn timewait() -> Duration {
    milliseconds(LOCAL_ACK_TIMEOUT)
}

/// The ACK timeout of our queue pair towards a peer that takes `delay` to acknowledge: packet life
/// plus one, unless that is more, and one more if they are about the same
/// (drivers/infiniband/core/cm.c, `cm_ack_timeout`).
pub fn ack_timeout(delay: u8) -> u8 {
    let life = LOCAL_ACK_TIMEOUT;
    let timeout = if life >= delay {
        life + u8::from(delay >= life - 1)
    } else {
        delay + u8::from(life >= delay - 1)
    };
    timeout.min(ACK_TIMEOUT_MAX)
}

/// The ACK timeout of our queue pair when the peer says what it is to be: at least 1 ms, and not 0,
/// which is to wait for ever.
pub fn asked_ack_timeout(code: u8) -> u8 {
    match code {
        0 => ACK_TIMEOUT_MAX,
        code => code.clamp(8, ACK_TIMEOUT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checklist 103: Linux's own codes give its 6144 ms.
    #[test]
    fn codes_are_times_as_linux_takes_them() {
        let interval = |life, response| milliseconds(life) * 2 + milliseconds(response);
        assert_eq!(interval(18, 20), Duration::from_millis(6144));
        assert_eq!(request_interval(), Duration::from_millis(384));
        assert_eq!(milliseconds(0), Duration::from_millis(1));
        assert_eq!(milliseconds(255), milliseconds(31));
        assert_eq!(reply_interval(20), Duration::from_millis(4096));
        assert_eq!(reply_interval(31), Duration::from_millis(4096));
        assert_eq!(reply_interval(0), Duration::from_millis(64));
    }

    #[test]
    fn a_slow_peer_gets_its_time() {
        assert_eq!(ack_timeout(TARGET_ACK_DELAY), 15);
        // rdma_rxe says 15.
        assert_eq!(ack_timeout(15), 16);
        assert_eq!((ack_timeout(16), ack_timeout(17)), (17, 17));
        assert_eq!(ack_timeout(31), ACK_TIMEOUT_MAX);
    }
}
