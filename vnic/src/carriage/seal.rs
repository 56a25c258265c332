//! Authentication of management datagrams with a key that all nodes of a fabric share.
//!
//! With a key, 32 bytes come before each piece of a message, big-endian:
//!
//! ```text
//!  0  version   u8    2; a datagram that begins with the piece has 1
//!  1  reserved  [7]   0
//!  8  counter   u64   microseconds since 1970, or the last counter plus one if that is larger
//! 16  MAC       [16]  first 16 bytes of HMAC-SHA-256 (RFC 2104, RFC 4868)
//! ```
//!
//! The MAC covers the text `ibtap management 2`, the addresses of sender and receiver (GID and queue pair number in
//! four bytes, each), the counter, and the piece. So a datagram is valid for one receiver only, or for the
//! group.
//!
//! A receiver takes each counter of a sender once. Datagrams may overtake each other: the receiver keeps the
//! last 32 counters, and refuses older ones. It takes no counter from more than five minutes before its own start.

use std::collections::HashMap;
use std::fmt;

use foldhash::fast::RandomState;
use hmac::{Hmac, KeyInit, Mac};
use proto::{Gid, LogLimiter, Qpn, Time};
use sha2::Sha256;

/// Bytes before the piece.
pub const SEAL_LEN: usize = 32;
/// Bytes of a key.
pub const KEY_LEN: usize = 32;

const VERSION: u8 = 2;
const COUNTER: std::ops::Range<usize> = 8..16;
const MAC: std::ops::Range<usize> = 16..SEAL_LEN;
const LABEL: &[u8] = b"ibtap management 2";

/// Counters of a sender that are kept.
const WINDOW: usize = 32;
/// How much the clock of a sender may be behind that of a receiver, in microseconds: 5 minutes.
const SKEW_US: u64 = 300_000_000;
/// Maximum number of senders whose counters are kept. Only owners of the key are kept.
const SENDERS_MAX: usize = 16_384;
/// Minimum interval of log lines about one reason, in milliseconds.
const LOG_MS: u64 = 60_000;

/// Sender and receiver of a datagram. The receiver may be a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// GID and queue pair of the sender.
    pub from: (Gid, Qpn),
    /// GID and queue pair of the receiver.
    pub to: (Gid, Qpn),
}

/// Two clocks of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Microseconds since 1970.
    pub wall_us: u64,
    /// The monotonic clock.
    pub now: Time,
}

/// Reason to refuse a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The datagram has no MAC, and this node has a key.
    #[error("it has no MAC: set management_key on that node, too (forged?)")]
    NoMac,
    /// The datagram has a MAC, and this node has no key.
    #[error("it has a MAC: set management_key on this node, too")]
    NoKey,
    /// The MAC is wrong.
    #[error("its MAC is wrong: all nodes need the same management_key (forged?)")]
    WrongMac,
    /// The counter was used before, or is too old.
    #[error("its counter is old: the clock of that node may be late (repeated by an attacker?)")]
    Repeated,
}

proto::counters! {
    /// Numbers of refused datagrams.
    pub struct SealCounts {
        /// Datagrams refused because they have no MAC.
        no_mac,
        /// Datagrams refused because they have a MAC and this node has no key.
        no_key,
        /// Datagrams refused because their MAC is wrong.
        wrong_mac,
        /// Datagrams refused because their counter was used before, or is too old.
        repeated,
    }
}

/// The counters of a sender.
struct Window {
    /// Counters below this are refused: until the window is full, an attacker could repeat them.
    floor: u64,
    /// The last counters, ascending.
    last: Vec<u64>,
}

impl Window {
    const fn new(floor: u64) -> Window {
        Window {
            floor,
            last: Vec::new(),
        }
    }

    /// Takes a counter; false if it was taken before or is too old.
    fn take(&mut self, counter: u64) -> bool {
        if counter < self.floor {
            return false;
        }
        let Err(at) = self.last.binary_search(&counter) else {
            return false;
        };
        if self.last.len() >= WINDOW {
            if at == 0 {
                return false;
            }
            self.last.remove(0);
            self.last.insert(at - 1, counter);
        } else {
            self.last.insert(at, counter);
        }
        true
    }

    fn last(&self) -> u64 {
        self.last.last().copied().unwrap_or_default()
    }
}

/// Counter and piece of a sealed datagram, unchecked; `None` if the datagram is not sealed.
#[must_use]
pub fn parse(datagram: &[u8]) -> Option<(u64, &[u8])> {
    let (seal, piece) = datagram.split_first_chunk::<SEAL_LEN>()?;
    let [VERSION, 0, 0, 0, 0, 0, 0, 0, counter @ ..] = seal else {
        return None;
    };
    let counter = counter.first_chunk().copied().map(u64::from_be_bytes)?;
    Some((counter, piece))
}

/// Seals and opens the datagrams of one endpoint.
pub struct Seal {
    /// The first key seals; each of them opens. Empty: datagrams are not sealed.
    keys: Vec<Hmac<Sha256>>,
    started: Time,
    /// The last counter sent.
    counter: u64,
    senders: HashMap<(Gid, Qpn), Window, RandomState>,
    /// The last counter of a forgotten sender: others are refused up to it.
    forgotten: u64,
    counts: SealCounts,
    logged: [LogLimiter; 4],
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys.len();
        f.debug_struct("Seal").field("keys", &keys).finish()
    }
}

impl Seal {
    /// Creates a seal. The first key seals, each of them opens; without a key, datagrams are not sealed.
    #[must_use]
    pub fn new(now: Time, keys: &[[u8; KEY_LEN]]) -> Seal {
        let mut seal = Seal {
            keys: Vec::new(),
            started: now,
            counter: 0,
            senders: HashMap::default(),
            forgotten: 0,
            counts: SealCounts::default(),
            logged: std::array::from_fn(|_| LogLimiter::new(LOG_MS)),
        };
        seal.set_keys(keys);
        seal
    }

    /// Replaces the keys. Counters of senders are kept.
    pub fn set_keys(&mut self, keys: &[[u8; KEY_LEN]]) {
        let keyed =
            |key: &[u8; KEY_LEN]| Hmac::new_from_slice(key).expect("HMAC takes keys of any length");
        self.keys = keys.iter().map(keyed).collect();
    }

    /// Bytes that [`Seal::seal`] adds.
    #[must_use]
    pub const fn overhead(&self) -> usize {
        if self.keys.is_empty() { 0 } else { SEAL_LEN }
    }

    /// Numbers of refused datagrams.
    #[must_use]
    pub const fn counts(&self) -> SealCounts {
        self.counts
    }

    /// Seals a piece.
    #[must_use]
    pub fn seal(&mut self, wall_us: u64, route: &Route, piece: Vec<u8>) -> Vec<u8> {
        let Some(key) = self.keys.first() else {
            return piece;
        };
        self.counter = wall_us.max(self.counter.saturating_add(1));
        let mac = mac(key, route, self.counter, &piece)
            .finalize()
            .into_bytes();
        let mut out = Vec::with_capacity(SEAL_LEN + piece.len());
        out.push(VERSION);
        out.resize(COUNTER.start, 0);
        out.extend(self.counter.to_be_bytes());
        out.extend(&mac[..MAC.len()]);
        out.extend(piece);
        out
    }

    /// Opens a datagram. Returns the piece.
    ///
    /// # Errors
    /// [`Refused`], counted.
    pub fn open<'d>(
        &mut self,
        clock: Clock,
        route: &Route,
        datagram: &'d [u8],
    ) -> Result<&'d [u8], Refused> {
        let opened = self.try_open(clock, route, datagram);
        if let Err(refused) = opened {
            *match refused {
                Refused::NoMac => &mut self.counts.no_mac,
                Refused::NoKey => &mut self.counts.no_key,
                Refused::WrongMac => &mut self.counts.wrong_mac,
                Refused::Repeated => &mut self.counts.repeated,
            } += 1;
        }
        opened
    }

    /// Whether to log this refusal: each reason is logged once a minute.
    pub fn should_log(&mut self, now: Time, refused: Refused) -> bool {
        self.logged[refused as usize].take(now).is_some()
    }

    fn try_open<'d>(
        &mut self,
        clock: Clock,
        route: &Route,
        datagram: &'d [u8],
    ) -> Result<&'d [u8], Refused> {
        let sealed = parse(datagram);
        if self.keys.is_empty() {
            return match sealed {
                Some(_) => Err(Refused::NoKey),
                None => Ok(datagram),
            };
        }
        let (counter, piece) = sealed.ok_or(Refused::NoMac)?;
        let fits = |key| {
            let mac = mac(key, route, counter, piece);
            mac.verify_truncated_left(&datagram[MAC]).is_ok()
        };
        if !self.keys.iter().any(fits) {
            return Err(Refused::WrongMac);
        }
        match self.take(clock, route.from, counter) {
            true => Ok(piece),
            false => Err(Refused::Repeated),
        }
    }

    fn take(&mut self, clock: Clock, from: (Gid, Qpn), counter: u64) -> bool {
        if let Some(window) = self.senders.get_mut(&from) {
            return window.take(counter);
        }
        // By the present clock, which may have been corrected since the start.
        let up_us = clock.now.since(self.started).saturating_mul(1000);
        let oldest = clock.wall_us.saturating_sub(up_us.saturating_add(SKEW_US));
        let floor = oldest.max(self.forgotten.saturating_add(1));
        if counter < floor {
            return false;
        }
        if self.senders.len() >= SENDERS_MAX {
            self.forget_one();
        }
        let window = self.senders.entry(from);
        window.or_insert(Window::new(floor)).take(counter)
    }

    /// Forgets the sender that has been silent for the longest time.
    fn forget_one(&mut self) {
        let silent = self.senders.iter().map(|(from, w)| (w.last(), *from)).min();
        if let Some((last, from)) = silent {
            self.senders.remove(&from);
            self.forgotten = self.forgotten.max(last);
        }
    }
}

/// The MAC of a datagram.
fn mac(key: &Hmac<Sha256>, route: &Route, counter: u64, piece: &[u8]) -> Hmac<Sha256> {
    let mut mac = key.clone();
    mac.update(LABEL);
    for (gid, qpn) in [route.from, route.to] {
        mac.update(&gid.0);
        mac.update(&qpn.get().to_be_bytes());
    }
    mac.update(&counter.to_be_bytes());
    mac.update(piece);
    mac
}

#[cfg(test)]
mod tests;
