//! Counters, with the names of Linux's counters (drivers/infiniband/core/cm.c, `counter_group_names`).

use proto::counters::Description;

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

proto::reasons! {
    /// Counters without a message type.
    pub enum Drop {
        /// Connection messages dropped: not a message, or a message with invalid content.
        Malformed => "cm_rx_malformed",
        /// Connection messages dropped: for no known connection.
        Unmatched => "cm_rx_unmatched",
        /// Connection messages dropped: for a connection, but not from its peer.
        WrongSource => "cm_rx_wrong_source",
        /// Connection messages dropped: the source exceeds its rate.
        RateLimited => "cm_rx_rate_limited",
        /// Connection messages dropped: the queue of datagrams to send is full.
        QueueFull => "cm_tx_queue_full",
        /// Half-open connections that made room for others.
        HalfOpenEvicted => "cm_half_open_evicted",
    }
}

macro_rules! names {
    ($($group:literal $text:literal,)*) => {
        [$([
            (concat!("cm_", $group, "_req"), concat!($text, ": REQ.")),
            (concat!("cm_", $group, "_mra"), concat!($text, ": MRA.")),
            (concat!("cm_", $group, "_rej"), concat!($text, ": REJ.")),
            (concat!("cm_", $group, "_rep"), concat!($text, ": REP.")),
            (concat!("cm_", $group, "_rtu"), concat!($text, ": RTU.")),
            (concat!("cm_", $group, "_dreq"), concat!($text, ": DREQ.")),
            (concat!("cm_", $group, "_drep"), concat!($text, ": DREP.")),
            (concat!("cm_", $group, "_sidr_req"), concat!($text, ": SIDR_REQ.")),
            (concat!("cm_", $group, "_sidr_rep"), concat!($text, ": SIDR_REP.")),
            (concat!("cm_", $group, "_lap"), concat!($text, ": LAP.")),
            (concat!("cm_", $group, "_apr"), concat!($text, ": APR.")),
        ]),*]
    };
}

/// Names and descriptions, by [`Group`] and message.
const MESSAGE_NAMES: [[Description; MESSAGES]; 4] = names![
    "tx_msgs" "Connection messages sent",
    "tx_retries" "Connection messages sent again",
    "rx_msgs" "Connection messages received",
    "rx_duplicates" "Connection messages received again",
];

/// All counters.
#[derive(Debug, Default)]
pub struct Counts {
    messages: [[u64; MESSAGES]; 4],
    drops: [u64; Drop::COUNT],
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
        let names = MESSAGE_NAMES.iter().flatten();
        let messages = names.zip(self.messages.iter().flatten());
        let messages = messages.map(|((name, _), n)| (*name, *n));
        messages.chain(Drop::named(&self.drops)).collect()
    }

    /// Names and descriptions of [`Counts::list`].
    pub fn descriptions() -> impl Iterator<Item = &'static Description> {
        let messages = MESSAGE_NAMES.iter().flatten();
        messages.chain(Drop::DESCRIPTIONS)
    }
}
