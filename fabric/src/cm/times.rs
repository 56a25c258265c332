//! Time constants of our messages, and limits for times in peers' messages.

use std::time::Duration;

/// Maximum time to answer, for both sides: 268 ms, 256 ms by [`milliseconds`].
pub const RESPONSE_TIMEOUT: u8 = 16;

/// Repetitions of our request, and the number that our request allows for the peer's reply.
pub const MAX_CM_RETRIES: u8 = 7;

/// Maximum number of repetitions of our reply, whatever the request allows (up to 15): the sender of a
/// request with another host's address sends four datagrams to that host, not 16.
pub const REPLY_RETRIES: u8 = 3;

/// Repetitions of a DisconnectRequest. A peer that is alive answers one; repetitions to a dead peer
/// keep the queue pair's number in use.
pub const DREQ_RETRIES: u8 = 5;

/// Maximum time for the local user's answer to a request or a reply. The user answers at once or never.
pub const ANSWER: Duration = Duration::from_secs(10);

/// Packet lifetime on the path, as in Linux's PathRecords: the code below [`LOCAL_ACK_TIMEOUT`], 67 ms.
pub const PACKET_LIFE: u8 = LOCAL_ACK_TIMEOUT - 1;

/// Acknowledgement timeout of a queue pair: 134 ms.
pub const LOCAL_ACK_TIMEOUT: u8 = 15;

/// Maximum time until our acknowledgement: 4.2 ms, more than the millisecond for which acknowledgements
/// are delayed.
pub const TARGET_ACK_DELAY: u8 = 10;

/// Retransmissions of a queue pair, after timeouts and after RNR NAKs.
pub const RETRY_COUNT: u8 = 7;

/// Maximum acknowledgement timeout that a peer may ask for: 1 s.
pub const ACK_TIMEOUT_MAX: u8 = 18;

/// Maximum time that an MRA may ask for: 67 s, as Linux's rdma_cm does.
pub const SERVICE_TIMEOUT_MAX: u8 = 24;

/// Bounds of the interval between ConnectReplies: 64 ms (a code of 0 would cause a flood) to 4 s
/// (Linux's value).
const REPLY_TIMEOUTS: std::ops::RangeInclusive<u8> = 14..=20;

/// Decodes a time code as Linux does (drivers/infiniband/core/cm.c, `cm_convert_to_ms`): slightly less
/// than 4.096 µs times two to the power of the code, and at least 1 ms.
pub const fn milliseconds(code: u8) -> Duration {
    let shift = code.saturating_sub(8);
    Duration::from_millis(1 << if shift > 23 { 23 } else { shift })
}

/// Interval between ConnectRequests, and between DisconnectRequests: 384 ms, the time to answer and the
/// packet lifetime for both ways (drivers/infiniband/core/cm.c, `ib_send_cm_req`).
pub const fn request_interval() -> Duration {
    milliseconds(PACKET_LIFE)
        .saturating_mul(2)
        .saturating_add(milliseconds(RESPONSE_TIMEOUT))
}

/// Interval between ConnectReplies, from the time that the requester needs to answer.
pub fn reply_interval(local_response_timeout: u8) -> Duration {
    let (min, max) = (*REPLY_TIMEOUTS.start(), *REPLY_TIMEOUTS.end());
    milliseconds(local_response_timeout.clamp(min, max))
}

/// How long a connection's numbers stay unused, until its last packets have arrived or are lost.
pub const fn timewait() -> Duration {
    milliseconds(LOCAL_ACK_TIMEOUT)
}

/// The ACK timeout of our queue pair towards a peer that takes `delay` to acknowledge: the larger of
/// packet lifetime plus one and `delay`, plus one if they are nearly equal
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

/// The ACK timeout of our queue pair if the peer asks for this one: at least 1 ms, and not 0, which
/// means forever.
pub fn asked_ack_timeout(code: u8) -> u8 {
    match code {
        0 => ACK_TIMEOUT_MAX,
        code => code.clamp(8, ACK_TIMEOUT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checklist 103: Linux's own codes result in its 6144 ms.
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
        // rdma_rxe uses 15.
        assert_eq!(ack_timeout(15), 16);
        assert_eq!((ack_timeout(16), ack_timeout(17)), (17, 17));
        assert_eq!(ack_timeout(31), ACK_TIMEOUT_MAX);
    }
}
