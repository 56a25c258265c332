//! Counters of a virtual port: those of the kernel's driver, with its names
//! (drivers/infiniband/ulp/opa_vnic/opa_vnic_ethtool.c), and those of ibtap.

/// Defines the structure and the list of names together, so that they always match.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one virtual port in one thread. The sum over all threads is the port's counter.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Names and values; the driver's counters first, in its order.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Adds the counters of another thread.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

/// Number of [`Counters::named`] that are the driver's (`ethtool -S`).
pub const DRIVER_COUNTERS: usize = 39;

counters! {
    /// Received frames, including runts and oversized frames.
    rx_packets,
    /// Frames to send, including dropped frames.
    tx_packets,
    /// Bytes of these frames, with 4 bytes of frame check sequence for each frame.
    rx_bytes,
    /// As `rx_bytes`.
    tx_bytes,
    /// Sum of the receive errors.
    rx_errors,
    /// Sum of the send errors.
    tx_errors,
    /// As `rx_errors`.
    rx_dropped,
    /// As `tx_errors`.
    tx_dropped,
    /// Good unicast frames.
    tx_unicast,
    /// Good multicast and broadcast frames.
    tx_mcastbcast,
    /// Good frames without a VLAN tag.
    tx_untagged,
    /// Good frames with a VLAN tag.
    tx_vlan,
    /// Frames of up to 60 bytes, without frame check sequence; so are the sizes below.
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
    /// Good unicast frames.
    rx_unicast,
    /// Good multicast and broadcast frames.
    rx_mcastbcast,
    /// Good frames without a VLAN tag.
    rx_untagged,
    /// Good frames with a VLAN tag.
    rx_vlan,
    /// As `tx_64_size`.
    rx_64_size,
    /// 61 to 123.
    rx_65_127,
    /// 124 to 251.
    rx_128_255,
    /// 252 to 507.
    rx_256_511,
    /// 508 to 1019.
    rx_512_1023,
    /// 1020 to 1514.
    rx_1024_1518,
    /// 1515 and more.
    rx_1519_max,
    /// Frames that the TAP did not accept.
    rx_fifo_errors,
    /// Always 0, as in the driver.
    rx_length_errors,
    /// Frames for which the fabric had no room.
    tx_fifo_errors,
    /// Frames that the fabric refused.
    tx_carrier_errors,
    /// Frames without a destination LID.
    tx_dlid_zero,
    /// Frames dropped because the port was not forwarding.
    tx_drop_state,
    /// Packets dropped because the port was not forwarding.
    rx_drop_state,
    /// Received frames larger than the MTU plus 18 bytes.
    rx_oversize,
    /// Received frames of less than 60 bytes.
    rx_runt,
    /// Packets of another switch.
    rx_bad_veswid,
    /// Packets that are not Ethernet.
    rx_bad_l4,
    /// Packets without the 16B format.
    rx_bad_l2,
    /// Packets to or from an invalid LID.
    rx_bad_lid,
    /// Packets of another partition.
    rx_bad_pkey,
    /// Packets with an invalid tail.
    rx_bad_tail,
    /// Packets with a wrong ICRC.
    rx_icrc,
    /// Packets whose length differs from the length in the header.
    rx_length_mismatch,
    /// Packets that are too short, too long, or not a multiple of 8 bytes.
    rx_truncated,
    /// Own multicast returned by the group.
    rx_self_mcast,
    /// Flooded unicast for another port of the switch.
    rx_other_lid,
    /// Packets whose source LID belongs to another address on the fabric.
    rx_forged_lid,
    /// Frames to send that are larger than the MTU plus 18 bytes.
    tx_too_big,
    /// Frames to send of less than 14 bytes, or with an inconsistent offload header.
    tx_bad_frame,
    /// Frames flooded because their destination is unknown.
    tx_flooded,
    /// Frames delivered to another virtual port of this daemon without the fabric.
    tx_to_siblings,
    /// Addresses learned.
    mac_learned,
    /// Addresses that moved.
    mac_moved,
    /// Moves not followed, because the address moved too often.
    mac_damped,
    /// Addresses evicted by newer ones.
    mac_evicted,
    /// Addresses that expired.
    mac_aged,
    /// Refused addresses behind the interface: the maximum number of them were active.
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
