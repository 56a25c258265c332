//! What a work request's id says: what was posted, and where its bookkeeping is.
//!
//! The library hands back the 64 bits that it was given, or others if it lies: nothing of them is
//! used before it was looked up.

/// Where the kind is.
const KIND_SHIFT: u32 = 56;

/// Bits below the kind.
const VALUE: u64 = (1 << KIND_SHIFT) - 1;

/// The last work request of a train.
const LAST: u64 = 1 << 48;

/// One posted work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A datagram was to be received in this place.
    Datagram {
        /// Its number.
        place: u32,
    },
    /// A message was to be received in this place.
    Message {
        /// Its number.
        place: u32,
    },
    /// A packet of a train was to be sent.
    Train {
        /// The place of the train's record.
        record: u16,
        /// Which of the trains that had this place.
        generation: u32,
        /// The train's last packet.
        last: bool,
    },
    /// A message was to be sent; the 56 bits are those of the connections.
    Posted(u64),
}

impl Work {
    /// As an id.
    pub const fn id(self) -> u64 {
        let (kind, value) = match self {
            Work::Datagram { place } => (1, place as u64),
            Work::Message { place } => (2, place as u64),
            Work::Train {
                record,
                generation,
                last,
            } => {
                let last = if last { LAST } else { 0 };
                (3, last | (record as u64) << 32 | generation as u64)
            }
            Work::Posted(value) => (4, value & VALUE),
        };
        kind << KIND_SHIFT | value
    }

    /// From an id; none if it is no id of ours.
    pub const fn of(id: u64) -> Option<Work> {
        let value = id & VALUE;
        let place = value as u32;
        Some(match id >> KIND_SHIFT {
            1 if value >> 32 == 0 => Work::Datagram { place },
            2 if value >> 32 == 0 => Work::Message { place },
            3 if value >> 49 == 0 => Work::Train {
                record: (value >> 32) as u16,
                generation: value as u32,
                last: value & LAST != 0,
            },
            4 => Work::Posted(value),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn work() -> impl Strategy<Value = Work> {
        prop_oneof![
            any::<u32>().prop_map(|place| Work::Datagram { place }),
            any::<u32>().prop_map(|place| Work::Message { place }),
            any::<(u16, u32, bool)>().prop_map(|(record, generation, last)| Work::Train {
                record,
                generation,
                last,
            }),
            (0..=VALUE).prop_map(Work::Posted),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_is_read(work in work()) {
            prop_assert_eq!(Work::of(work.id()), Some(work));
        }

        #[test]
        fn what_is_read_was_said(id: u64) {
            if let Some(work) = Work::of(id) {
                prop_assert_eq!(work.id(), id);
            }
        }
    }
}
