//! Counters with names and descriptions, defined once.

/// A counter's name and its description: one or more sentences.
pub type Description = (&'static str, &'static str);

/// Defines a structure of counters. The documentation of a field is the counter's description, so a program can
/// print it. A counter has the name of its field, or the name behind `=>`.
///
/// The structure has `DESCRIPTIONS`, `named` (names and values, in the same order) and `add`.
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis struct $set:ident {
        $($(#[doc = $text:literal])+ $field:ident $(=> $name:expr)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        $vis struct $set {
            $($(#[doc = $text])+ pub $field: u64,)*
        }

        impl $set {
            /// Names and descriptions.
            pub const DESCRIPTIONS: &'static [$crate::counters::Description] =
                &[$(($crate::counters!(@name $field $($name)?), concat!($($text),+)),)*];

            /// Names and values.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$(($crate::counters!(@name $field $($name)?), self.$field),)*]
            }

            /// Adds other counters to these.
            pub fn add(&mut self, other: &$set) {
                $(self.$field += other.$field;)*
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:expr) => { $name };
}

/// Defines an enumeration of reasons, each with the name of its counter. The documentation of a reason is the
/// counter's description.
///
/// The enumeration has `COUNT`, and `DESCRIPTIONS` in the order of the discriminants.
#[macro_export]
macro_rules! reasons {
    ($(#[$meta:meta])* $vis:vis enum $set:ident {
        $($(#[doc = $text:literal])+ $reason:ident => $name:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        $vis enum $set {
            $($(#[doc = $text])+ $reason,)*
        }

        impl $set {
            /// Number of reasons.
            pub const COUNT: usize = $set::DESCRIPTIONS.len();

            /// Names and descriptions of the counters, in the order of the discriminants.
            pub const DESCRIPTIONS: &'static [$crate::counters::Description] =
                &[$(($name, concat!($($text),+)),)*];

            /// Names and values of counters in the order of the discriminants.
            pub fn named(
                counts: &[u64; $set::COUNT],
            ) -> impl Iterator<Item = (&'static str, u64)> {
                $set::DESCRIPTIONS.iter().zip(counts).map(|((name, _), n)| (*name, *n))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    counters! {
        /// Counters of a test.
        struct Counts {
            /// Packets
            /// received.
            rx_packets,
            /// Packets refused.
            refused => "rx_refused",
        }
    }

    reasons! {
        /// Reasons of a test.
        enum Reason {
            /// Too short.
            Short => "rx_short",
            /// Too long.
            Long => "rx_long",
        }
    }

    #[test]
    fn a_counter_has_one_name_and_the_description_of_its_field() {
        let mut counts = Counts {
            rx_packets: 1,
            refused: 2,
        };
        counts.add(&counts.clone());
        assert_eq!(counts.named(), [("rx_packets", 2), ("rx_refused", 4)]);
        let texts = [
            ("rx_packets", " Packets received."),
            ("rx_refused", " Packets refused."),
        ];
        assert_eq!(Counts::DESCRIPTIONS, texts);
    }

    #[test]
    fn a_reason_counts_under_its_own_name() {
        let mut counts = [0; Reason::COUNT];
        counts[Reason::Long as usize] += 1;
        counts[Reason::Short as usize] += 2;
        let named: Vec<_> = Reason::named(&counts).collect();
        assert_eq!(named, [("rx_short", 2), ("rx_long", 1)]);
        assert_eq!(Reason::DESCRIPTIONS[1].1, " Too long.");
    }
}
