//! Sums of counters (R10, and the consistency of the driver's statistics).

use std::sync::Arc;

use proptest::prelude::*;
use proto::{Mac, Time};

use crate::counters::Counters;
use crate::port::testing::*;
use crate::port::{Sizes, Unsent, VeswPort};

/// An event at a port.
#[derive(Clone, Debug)]
enum Step {
    /// A frame from the TAP: length in bytes, kind of destination, with a tag or not.
    Send(usize, u8, bool),
    /// The frame before was not sent.
    Fail(usize, Unsent),
    /// A packet of the other port.
    Receive(usize, bool),
    /// The TAP is full.
    NotTaken,
    Up(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let unsent = prop::sample::select(vec![Unsent::NoRoom, Unsent::Refused, Unsent::TooBig]);
    let step = prop_oneof![
        8 => (0..1600_usize, 0..4_u8, any::<bool>()).prop_map(|(l, d, t)| Step::Send(l, d, t)),
        1 => (14..1600_usize, unsent).prop_map(|(l, u)| Step::Fail(l, u)),
        8 => (14..1600_usize, any::<bool>()).prop_map(|(l, g)| Step::Receive(l, g)),
        1 => Just(Step::NotTaken),
        1 => any::<bool>().prop_map(Step::Up),
    ];
    prop::collection::vec(step, 0..100)
}

fn destination(kind: u8) -> Mac {
    match kind {
        0 => mac(7),
        1 => BROADCAST,
        // The table's entry has no LID, so the address is unknown.
        2 => [0x02, 0, 0, 0, 0, 0],
        _ => [0x06, 0x2c, 0, 7, 0, 0],
    }
}

fn tagged_frame(len: usize, to: Mac, tagged: bool) -> Vec<u8> {
    let mut f = frame_of(len, to, mac(5));
    if tagged {
        let types = [0x81, 0, 0xa0, 1, 8, 0];
        // A frame may end in its tag.
        for (byte, value) in f.iter_mut().skip(12).zip(types) {
            *byte = value;
        }
    }
    f
}

fn do_step(port: &mut VeswPort, step: &Step) {
    match *step {
        Step::Send(len, to, tagged) => {
            send(port, &tagged_frame(len, destination(to), tagged));
        }
        Step::Fail(len, why) => port.count_unsent(why, Sizes::one(len)),
        Step::Receive(len, group) => {
            let to = if group { BROADCAST } else { mac(5) };
            let packet = packet(&header(7, ALL), &frame_of(len, to, mac(7)));
            let _ = port.from_fabric(Time(0), &from(7, true), &packet);
        }
        Step::NotTaken => port.count_not_taken(1),
        Step::Up(up) => port.set_up(up),
    }
}

fn tx_buckets(c: &Counters) -> u64 {
    let small = c.tx_64_size + c.tx_65_127 + c.tx_128_255 + c.tx_256_511;
    small + c.tx_512_1023 + c.tx_1024_1518 + c.tx_1519_max
}

fn rx_buckets(c: &Counters) -> u64 {
    let small = c.rx_64_size + c.rx_65_127 + c.rx_128_255 + c.rx_256_511;
    small + c.rx_512_1023 + c.rx_1024_1518 + c.rx_1519_max
}

proptest! {
    #[test]
    fn r07_r10_counters_reconcile_whatever_happens(steps in steps(), learning in any::<bool>()) {
        let mut port = if learning { port(5) } else { port_without_learning(5, &info(5)) };
        port.set_table(Arc::new(table(&[([2, 0, 0, 0, 0, 0], 0)])));
        for step in &steps {
            do_step(&mut port, step);
        }
        let c = port.counters();
        prop_assert_eq!(tx_buckets(c), c.tx_packets);
        prop_assert_eq!(c.tx_unicast + c.tx_mcastbcast, c.tx_packets - c.tx_errors);
        prop_assert_eq!(c.tx_vlan + c.tx_untagged, c.tx_unicast + c.tx_mcastbcast);
        let reasons = c.tx_fifo_errors + c.tx_carrier_errors + c.tx_drop_state + c.tx_dlid_zero;
        prop_assert_eq!(c.tx_errors, reasons + c.tx_too_big + c.tx_bad_frame);
        prop_assert_eq!(c.tx_dropped, c.tx_errors);

        prop_assert_eq!(rx_buckets(c), c.rx_packets);
        let delivered = c.rx_unicast + c.rx_mcastbcast;
        prop_assert_eq!(delivered, c.rx_packets - c.rx_oversize - c.rx_runt);
        prop_assert_eq!(c.rx_vlan + c.rx_untagged, delivered);
        let reasons = c.rx_fifo_errors + c.rx_bad_veswid + c.rx_drop_state + c.rx_oversize;
        prop_assert_eq!(c.rx_errors, reasons + c.rx_runt);
        prop_assert_eq!(c.rx_dropped, c.rx_errors);
        prop_assert_eq!(c.rx_length_errors, 0);
    }

    /// One port receives what the other sends, by kind and by bytes.
    #[test]
    fn two_ports_count_the_same_frames(frames in prop::collection::vec((14..1519_usize, 0..4_u8, any::<bool>()), 0..40)) {
        let (mut five, mut seven) = (port(5), port(7));
        for (len, to, tagged) in frames {
            let f = tagged_frame(len, destination(to), tagged);
            if let Sent::Packet(_, _, packet) = send(&mut five, &f) {
                prop_assert!(seven.from_fabric(Time(0), &from(5, true), &packet).is_ok());
            }
        }
        let (a, b) = (five.counters(), seven.counters());
        prop_assert_eq!(a.tx_unicast, b.rx_unicast);
        prop_assert_eq!(a.tx_mcastbcast, b.rx_mcastbcast);
        prop_assert_eq!((a.tx_vlan, a.tx_untagged), (b.rx_vlan, b.rx_untagged));
        prop_assert_eq!((a.tx_packets, a.tx_bytes), (b.rx_packets, b.rx_bytes));
        prop_assert_eq!(tx_buckets(a), rx_buckets(b));
    }
}
