//! Frame counters, with the rules of the kernel's driver (drivers/infiniband/hw/hfi1/vnic_main.c).

use super::types::{Class, Sizes, Unsent};
use crate::counters::Counters;
use crate::packet::{FRAME_MIN, Refusal};

/// Bytes of the frame check sequence, which is counted but not carried.
const FCS_LEN: usize = 4;

/// Counts frames to send, sent or not.
#[inline]
pub fn handed_over(counters: &mut Counters, sizes: Sizes) {
    let Sizes { full, count, last } = sizes;
    let Some(others) = count.checked_sub(1) else {
        return;
    };
    if others > 0 {
        sent_of_length(counters, full, others);
    }
    sent_of_length(counters, last, 1);
}

/// Counts `count` frames of this length; shorter ones count as [`FRAME_MIN`].
#[inline]
fn sent_of_length(c: &mut Counters, len: usize, count: usize) {
    let (len, count) = (len.max(FRAME_MIN), count as u64);
    c.tx_packets += count;
    c.tx_bytes += count * (len + FCS_LEN) as u64;
    let bucket = match len {
        ..=60 => &mut c.tx_64_size,
        61..=123 => &mut c.tx_65_127,
        124..=251 => &mut c.tx_128_255,
        252..=507 => &mut c.tx_256_511,
        508..=1019 => &mut c.tx_512_1023,
        1020..=1514 => &mut c.tx_1024_1518,
        _ => &mut c.tx_1519_max,
    };
    *bucket += count;
}

/// Counts sent frames.
#[inline]
pub fn sent(c: &mut Counters, class: Class, sizes: Sizes) {
    handed_over(c, sizes);
    let count = sizes.count as u64;
    *if class.group {
        &mut c.tx_mcastbcast
    } else {
        &mut c.tx_unicast
    } += count;
    *if class.tagged {
        &mut c.tx_vlan
    } else {
        &mut c.tx_untagged
    } += count;
    if class.sibling {
        c.tx_to_siblings += count;
    }
}

/// Counts frames that were not sent.
pub fn unsent(c: &mut Counters, why: Unsent, sizes: Sizes) {
    handed_over(c, sizes);
    let count = sizes.count as u64;
    let reason = match why {
        Unsent::NoRoom => &mut c.tx_fifo_errors,
        Unsent::Refused => &mut c.tx_carrier_errors,
        Unsent::TooBig => &mut c.tx_too_big,
        Unsent::BadFrame => &mut c.tx_bad_frame,
        Unsent::NoDestination => &mut c.tx_dlid_zero,
        Unsent::State => &mut c.tx_drop_state,
    };
    *reason += count;
    c.tx_errors += count;
    c.tx_dropped += count;
}

/// Counts received frames: delivered, or refused only for their length.
#[inline]
fn received_of_length(c: &mut Counters, len: usize, count: usize) {
    let count = count as u64;
    c.rx_packets += count;
    c.rx_bytes += count * (len + FCS_LEN) as u64;
    let bucket = match len {
        ..=60 => &mut c.rx_64_size,
        61..=123 => &mut c.rx_65_127,
        124..=251 => &mut c.rx_128_255,
        252..=507 => &mut c.rx_256_511,
        508..=1019 => &mut c.rx_512_1023,
        1020..=1514 => &mut c.rx_1024_1518,
        _ => &mut c.rx_1519_max,
    };
    *bucket += count;
}

/// Counts frames for the TAP.
#[inline]
pub fn delivered(c: &mut Counters, group: bool, tagged: bool, sizes: Sizes) {
    let Some(others) = sizes.count.checked_sub(1) else {
        return;
    };
    if others > 0 {
        received_of_length(c, sizes.full.max(FRAME_MIN), others);
    }
    received_of_length(c, sizes.last.max(FRAME_MIN), 1);
    let count = sizes.count as u64;
    *if group {
        &mut c.rx_mcastbcast
    } else {
        &mut c.rx_unicast
    } += count;
    *if tagged {
        &mut c.rx_vlan
    } else {
        &mut c.rx_untagged
    } += count;
}

/// Counts a refused packet whose frame has this length. Frames of a wrong length count as received. The
/// driver's own reasons count as errors. Ours do not, because packets that the driver's hardware drops do
/// not either.
#[cold]
pub fn refused(c: &mut Counters, why: Refusal, frame_len: Option<usize>) {
    why.count(c);
    if let (Refusal::Runt | Refusal::Oversize, Some(len)) = (why, frame_len) {
        received_of_length(c, len, 1);
    }
    let is_error = matches!(
        why,
        Refusal::BadVeswId | Refusal::DropState | Refusal::Runt | Refusal::Oversize
    );
    if is_error {
        c.rx_errors += 1;
        c.rx_dropped += 1;
    }
}

/// Counts frames that the TAP did not accept, after they were counted as received.
pub fn not_taken(c: &mut Counters, frames: u64) {
    c.rx_fifo_errors += frames;
    c.rx_errors += frames;
    c.rx_dropped += frames;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(c: &Counters, prefix: &str) -> Vec<(&'static str, u64)> {
        let named = c.named();
        let sizes = [
            "64_size",
            "65_127",
            "128_255",
            "256_511",
            "512_1023",
            "1024_1518",
            "1519_max",
        ];
        let is_bucket = |name: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| sizes.contains(&rest))
        };
        named
            .into_iter()
            .filter(|(name, count)| is_bucket(name) && *count > 0)
            .collect()
    }

    #[test]
    fn r08_r09_sizes_are_counted_at_the_drivers_bounds() {
        let bounds = [
            (60, "64_size"),
            (61, "65_127"),
            (123, "65_127"),
            (124, "128_255"),
            (251, "128_255"),
            (252, "256_511"),
            (507, "256_511"),
            (508, "512_1023"),
            (1019, "512_1023"),
            (1020, "1024_1518"),
            (1514, "1024_1518"),
            (1515, "1519_max"),
            (9018, "1519_max"),
        ];
        let class = Class {
            group: false,
            tagged: false,
            sibling: false,
        };
        for (len, name) in bounds {
            let mut c = Counters::default();
            sent(&mut c, class, Sizes::one(len));
            delivered(&mut c, false, false, Sizes::one(len));
            assert_eq!(buckets(&c, "tx_"), [(&*format!("tx_{name}"), 1)], "{len}");
            assert_eq!(buckets(&c, "rx_"), [(&*format!("rx_{name}"), 1)], "{len}");
            assert_eq!((c.tx_bytes, c.rx_bytes), (len as u64 + 4, len as u64 + 4));
        }
    }

    #[test]
    fn a_large_send_counts_as_its_segments() {
        let mut c = Counters::default();
        let class = Class {
            group: false,
            tagged: true,
            sibling: false,
        };
        sent(
            &mut c,
            class,
            Sizes {
                full: 1518,
                count: 44,
                last: 54,
            },
        );
        let expected = Counters {
            tx_packets: 44,
            tx_bytes: 43 * 1522 + 64,
            tx_unicast: 44,
            tx_vlan: 44,
            tx_1519_max: 43,
            tx_64_size: 1,
            ..Counters::default()
        };
        assert_eq!(c, expected);
        sent(
            &mut c,
            class,
            Sizes {
                full: 0,
                count: 0,
                last: 0,
            },
        );
        assert_eq!(c, expected);
    }

    #[test]
    fn r07_r10_errors_are_the_sums_of_their_reasons() {
        let mut c = Counters::default();
        let whys = [
            (Unsent::NoRoom, 1),
            (Unsent::Refused, 2),
            (Unsent::TooBig, 3),
            (Unsent::BadFrame, 4),
            (Unsent::NoDestination, 5),
            (Unsent::State, 6),
        ];
        for (why, count) in whys {
            unsent(
                &mut c,
                why,
                Sizes {
                    full: 100,
                    count,
                    last: 100,
                },
            );
        }
        let driver = c.tx_fifo_errors + c.tx_carrier_errors + c.tx_drop_state + c.tx_dlid_zero;
        assert_eq!(driver, 1 + 2 + 5 + 6);
        assert_eq!(c.tx_errors, driver + c.tx_too_big + c.tx_bad_frame);
        assert_eq!((c.tx_dropped, c.tx_packets), (c.tx_errors, 21));
        for why in Refusal::ALL {
            refused(&mut c, *why, Some(100));
        }
        not_taken(&mut c, 7);
        let driver =
            c.rx_fifo_errors + c.rx_bad_veswid + c.rx_drop_state + c.rx_oversize + c.rx_runt;
        assert_eq!((c.rx_errors, c.rx_dropped), (driver, driver));
        // Counted as packets, but not as unicast or untagged.
        assert_eq!((c.rx_packets, c.rx_128_255, c.rx_65_127), (2, 0, 2));
        assert_eq!((c.rx_unicast, c.rx_untagged), (0, 0));
    }
}
