//! Counters, with the names of Linux's counters (drivers/infiniband/core/cm.c, `counter_group_names`).

use crate::mad::cm::{APR, REQ};

/// Number of message types.
const MESSAGES: usize = (APR - REQ) as usize + 1;

/// Counters for each message type.
#[derive(Clone, Copy)]
pub enum Group {
    TxMsgs,
    TxRetries,
    RxMsgs,
    RxDuplicates,
}

/// Counters without a message type.
#[derive(Clone, Copy)]
pub enum Drop {
    /// Not a message, or a message with invalid content.
    Malformed,
    /// For no known connection.
    Unmatched,
    /// For a connection, but not from its peer.
    WrongSource,
    /// A source exceeds its rate.
    RateLimited,
    /// The queue of datagrams to send is full.
    QueueFull,
    /// Half-open connections that made room for others.
    HalfOpenEvicted,
}

const DROPS: [&str; 6] = [
    "cm_rx_malformed",
    "cm_rx_unmatched",
    "cm_rx_wrong_source",
    "cm_rx_rate_limited",
    "cm_tx_queue_full",
    "cm_half_open_evicted",
];

macro_rules! names {
    ($($group:literal)*) => {
        [$([
            concat!("cm_", $group, "_req"),
            concat!("cm_", $group, "_mra"),
            concat!("cm_", $group, "_rej"),
            concat!("cm_", $group, "_rep"),
            concat!("cm_", $group, "_rtu"),
            concat!("cm_", $group, "_dreq"),
            concat!("cm_", $group, "_drep"),
            concat!("cm_", $group, "_sidr_req"),
            concat!("cm_", $group, "_sidr_rep"),
            concat!("cm_", $group, "_lap"),
            concat!("cm_", $group, "_apr"),
        ]),*]
    };
}

const NAMES: [[&str; MESSAGES]; 4] = names!["tx_msgs" "tx_retries" "rx_msgs" "rx_duplicates"];

/// All counters.
#[derive(Debug, Default)]
pub struct Counts {
    messages: [[u64; MESSAGES]; 4],
    drops: [u64; 6],
}

impl Counts {
    /// Counts a message; ignores unknown attributes.
    pub fn message(&mut self, group: Group, attribute: u16) {
        let index = usize::from(attribute.wrapping_sub(REQ));
        if let Some(count) = self.messages[group as usize].get_mut(index) {
            *count += 1;
        }
    }

    pub const fn dropped(&mut self, why: Drop) {
        self.drops[why as usize] += 1;
    }

    pub fn list(&self) -> Vec<(&'static str, u64)> {
        let messages = NAMES.iter().flatten().zip(self.messages.iter().flatten());
        let drops = DROPS.iter().zip(&self.drops);
        messages.chain(drops).map(|(n, c)| (*n, *c)).collect()
    }
}
