//! Why packets are not taken.

use std::fmt;

use crate::counters::Counters;

/// Makes the reasons and their counters from one list, so that they cannot part.
macro_rules! refusals {
    ($($(#[$doc:meta])* $reason:ident => $counter:ident, $words:literal;)*) => {
        /// Why a packet is not taken; each has a counter of its own.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Refusal {
            $($(#[$doc])* $reason,)*
        }

        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Refusal::$reason => $words,)*
                })
            }
        }

        impl Refusal {
            /// All of them.
            pub const ALL: &'static [Refusal] = &[$(Refusal::$reason,)*];

            /// The name of its counter.
            #[must_use]
            pub const fn counter(self) -> &'static str {
                match self {
                    $(Refusal::$reason => stringify!($counter),)*
                }
            }

            /// Counts it, in its own counter and in no other.
            pub fn count(self, counters: &mut Counters) {
                match self {
                    $(Refusal::$reason => counters.$counter += 1,)*
                }
            }
        }
    };
}

refusals! {
    /// Shorter than any packet, longer than any, or not of whole quad words.
    Truncated => rx_truncated, "shorter or longer than a 16B packet, or not of whole quad words";
    /// Not of the 16B format.
    BadL2 => rx_bad_l2, "not of the 16B format";
    /// Not Ethernet.
    BadL4 => rx_bad_l4, "not Ethernet";
    /// The header says another length.
    LengthMismatch => rx_length_mismatch, "the header says another length";
    /// From a LID that nobody sends from, to one that nobody receives at, or not to this port.
    BadLid => rx_bad_lid, "a LID that cannot be";
    /// More padding than there can be.
    BadTail => rx_bad_tail, "the tail says more padding than there can be";
    /// The ICRC is wrong.
    Icrc => rx_icrc, "the ICRC is wrong";
    /// For another port, and flooded since its sender does not know where that is.
    OtherLid => rx_other_lid, "for another port";
    /// This port's own, given back by a group.
    SelfMulticast => rx_self_mcast, "given back by a group";
    /// From another place than its source LID is at.
    ForgedLid => rx_forged_lid, "from another place than its source LID is at";
    /// Of another partition.
    BadPkey => rx_bad_pkey, "of another partition";
    /// Of another switch.
    BadVeswId => rx_bad_veswid, "of another switch, or of none that can be";
    /// The port does not forward.
    DropState => rx_drop_state, "the port does not forward";
    /// The frame is shorter than Ethernet's shortest.
    Runt => rx_runt, "the frame is shorter than 60 bytes";
    /// The frame is longer than the MTU and 18 bytes.
    Oversize => rx_oversize, "the frame is longer than the MTU and 18 bytes";
}
