//! Reasons to drop received packets.

use std::fmt;

use crate::counters::Counters;

/// Defines the reasons and their counters together, so that they always match.
macro_rules! refusals {
    ($($(#[$doc:meta])* $reason:ident => $counter:ident, $words:literal;)*) => {
        /// Reason to drop a received packet. Each has a counter.
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
            /// All reasons.
            pub const ALL: &'static [Refusal] = &[$(Refusal::$reason,)*];

            /// Name of the counter.
            #[must_use]
            pub const fn counter(self) -> &'static str {
                match self {
                    $(Refusal::$reason => stringify!($counter),)*
                }
            }

            /// Increments the reason's counter, and no other.
            pub fn count(self, counters: &mut Counters) {
                match self {
                    $(Refusal::$reason => counters.$counter += 1,)*
                }
            }
        }
    };
}

refusals! {
    /// The packet is too short, too long, or not a multiple of 8 bytes.
    Truncated => rx_truncated, "length is too short, too long, or not a multiple of 8";
    /// The packet does not have the 16B format.
    BadL2 => rx_bad_l2, "not in 16B format";
    /// The packet does not contain Ethernet.
    BadL4 => rx_bad_l4, "not Ethernet";
    /// The length in the header differs from the packet's length.
    LengthMismatch => rx_length_mismatch, "length differs from the header";
    /// Source or destination LID is invalid, or the destination is not this port.
    BadLid => rx_bad_lid, "invalid LID";
    /// The padding in the tail exceeds 7 bytes.
    BadTail => rx_bad_tail, "padding in the tail exceeds 7 bytes";
    /// The ICRC is wrong.
    Icrc => rx_icrc, "wrong ICRC";
    /// The packet is for another port and was flooded.
    OtherLid => rx_other_lid, "for another port";
    /// A group returned this port's own packet.
    SelfMulticast => rx_self_mcast, "own packet returned by a group";
    /// The source LID belongs to another address on the fabric.
    ForgedLid => rx_forged_lid, "source LID belongs to another address";
    /// The packet is from another partition.
    BadPkey => rx_bad_pkey, "from another partition";
    /// The packet is from another switch, or its switch number is invalid.
    BadVeswId => rx_bad_veswid, "from another switch, or invalid switch number";
    /// The port does not forward.
    DropState => rx_drop_state, "port does not forward";
    /// The frame is shorter than 60 bytes.
    Runt => rx_runt, "frame is shorter than 60 bytes";
    /// The frame is longer than the MTU plus 18 bytes.
    Oversize => rx_oversize, "frame is longer than the MTU plus 18 bytes";
}
