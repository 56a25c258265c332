//! The counters of a virtual port, by the names of the kernel's driver
//! (drivers/infiniband/ulp/opa_vnic/opa_vnic_ethtool.c) and names of ours.

/// Makes the structure and the list of names from one list, so that they cannot part.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one virtual port in one thread; they add up.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Names and values, the driver's own names first and in its order.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Adds another thread's.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

/// How many of [`Counters::named`] are the driver's (`ethtool -S`).
pub const DRIVER_COUNTERS: usize = 39;

counters! {
    /// Frames received, runts and oversized ones included.
    rx_packets,
    /// Frames handed over for sending, dropped ones included.
    tx_packets,
    /// Their bytes, each with 4 of a frame check sequence.
    rx_bytes,
    /// Likewise.
    tx_bytes,
    /// Sum of the receive errors.
    rx_errors,
    /// Sum of the send errors.
    tx_errors,
    /// As `rx_errors`.
    rx_dropped,
    /// As `tx_errors`.
    tx_dropped,
    /// Good frames to one address.
    tx_unicast,
    /// Good frames to a group or to all.
    tx_mcastbcast,
    /// Good frames without a VLAN tag.
    tx_untagged,
    /// Good frames with one.
    tx_vlan,
    /// Frames of up to 60 bytes without the frame check sequence.
    tx_64_size,
    /// 61 to 123.
    tx_65_127,
    /// 124 to 251.
    tx_128_255,
    /// 252 to 507.
    tx_256_511,
    /// 508 to 1019.
    tx_512_1023,
    /// 1020 to 1514.
    tx_1024_1518,
    /// 1515 and more.
    tx_1519_max,
    /// Good frames to one address.
    rx_unicast,
    /// Good frames to a group or to all.
    rx_mcastbcast,
    /// Good frames without a VLAN tag.
    rx_untagged,
    /// Good frames with one.
    rx_vlan,
    /// As for sending.
    rx_64_size,
    /// Likewise.
    rx_65_127,
    /// Likewise.
    rx_128_255,
    /// Likewise.
    rx_256_511,
    /// Likewise.
    rx_512_1023,
    /// Likewise.
    rx_1024_1518,
    /// Likewise.
    rx_1519_max,
    /// Frames that the TAP did not take.
    rx_fifo_errors,
    /// Always 0, as in the driver.
    rx_length_errors,
    /// Frames that the fabric had no room for.
    tx_fifo_errors,
    /// Frames that the fabric refused.
    tx_carrier_errors,
    /// Frames for which there is no destination LID.
    tx_dlid_zero,
    /// Frames while the port was not forwarding.
    tx_drop_state,
    /// Likewise.
    rx_drop_state,
    /// Frames larger than the MTU and 18 bytes.
    rx_oversize,
    /// Frames of less than 60 bytes.
    rx_runt,
    /// Packets of another switch.
    rx_bad_veswid,
    /// Packets that are not Ethernet.
    rx_bad_l4,
    /// Packets that are not of the 16B format.
    rx_bad_l2,
    /// Packets to, or from, a LID that cannot be.
    rx_bad_lid,
    /// Packets of another partition.
    rx_bad_pkey,
    /// Packets whose tail says nonsense.
    rx_bad_tail,
    /// Packets whose ICRC is wrong, where they have one.
    rx_icrc,
    /// Packets whose header says another length.
    rx_length_mismatch,
    /// Packets too short, or too long, to be any.
    rx_truncated,
    /// Own multicast that came back.
    rx_self_mcast,
    /// Unicast for another port of the switch, flooded since its place was not known.
    rx_other_lid,
    /// Packets whose source LID is not where they came from.
    rx_forged_lid,
    /// Frames larger than the MTU and 18 bytes.
    tx_too_big,
    /// Frames of less than 14 bytes, or whose offload header does not add up.
    tx_bad_frame,
    /// Frames flooded since their destination was not known.
    tx_flooded,
    /// Frames given to another port of this daemon without the fabric.
    tx_to_siblings,
    /// Addresses learned.
    mac_learned,
    /// Addresses that went to another node.
    mac_moved,
    /// Addresses that were to go to another node too often, and stayed.
    mac_damped,
    /// Addresses pushed out by newer ones.
    mac_evicted,
    /// Addresses not heard of for too long.
    mac_aged,
    /// Times that an address behind the interface was not kept, since as many as are kept were in use.
    mac_refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r11_the_drivers_names_come_first_in_its_order() {
        let counters = Counters::default();
        let names: Vec<&str> = counters.named().iter().map(|(name, _)| *name).collect();
        let first = names
            .iter()
            .take(DRIVER_COUNTERS)
            .copied()
            .collect::<Vec<_>>();
        let expected = "rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped tx_dropped \
            tx_unicast tx_mcastbcast tx_untagged tx_vlan tx_64_size tx_65_127 tx_128_255 tx_256_511 \
            tx_512_1023 tx_1024_1518 tx_1519_max rx_unicast rx_mcastbcast rx_untagged rx_vlan rx_64_size \
            rx_65_127 rx_128_255 rx_256_511 rx_512_1023 rx_1024_1518 rx_1519_max rx_fifo_errors \
            rx_length_errors tx_fifo_errors tx_carrier_errors tx_dlid_zero tx_drop_state rx_drop_state \
            rx_oversize rx_runt";
        assert_eq!(first, expected.split_whitespace().collect::<Vec<_>>());
        assert_eq!(names[DRIVER_COUNTERS], "rx_bad_veswid");
    }
}
