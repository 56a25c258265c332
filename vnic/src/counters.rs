//! Counters of a virtual port: those of the kernel's driver, with its names
//! (drivers/infiniband/ulp/opa_vnic/opa_vnic_ethtool.c), and those of ibtap.

/// Number of the first [`Counters::named`], which are the driver's (`ethtool -S`).
pub const DRIVER_COUNTERS: usize = 39;

proto::counters! {
    /// Counters of one virtual port in one thread. The sum over all threads is the port's counter. The driver's
    /// counters are first, in its order.
    pub struct Counters {
        /// Received frames, including runts and oversized frames.
        rx_packets,
        /// Frames to send, including dropped frames.
        tx_packets,
        /// Bytes of the received frames, with 4 bytes of frame check sequence for each frame.
        rx_bytes,
        /// Bytes of the frames to send, with 4 bytes of frame check sequence for each frame.
        tx_bytes,
        /// Sum of the receive errors.
        rx_errors,
        /// Sum of the send errors.
        tx_errors,
        /// Sum of the receive errors, as `rx_errors`.
        rx_dropped,
        /// Sum of the send errors, as `tx_errors`.
        tx_dropped,
        /// Sent unicast frames without errors.
        tx_unicast,
        /// Sent multicast and broadcast frames without errors.
        tx_mcastbcast,
        /// Sent frames without a VLAN tag and without errors.
        tx_untagged,
        /// Sent frames with a VLAN tag and without errors.
        tx_vlan,
        /// Sent frames of up to 60 bytes, without frame check sequence.
        tx_64_size,
        /// Sent frames of 61 to 123 bytes, without frame check sequence.
        tx_65_127,
        /// Sent frames of 124 to 251 bytes, without frame check sequence.
        tx_128_255,
        /// Sent frames of 252 to 507 bytes, without frame check sequence.
        tx_256_511,
        /// Sent frames of 508 to 1019 bytes, without frame check sequence.
        tx_512_1023,
        /// Sent frames of 1020 to 1514 bytes, without frame check sequence.
        tx_1024_1518,
        /// Sent frames of 1515 bytes and more, without frame check sequence.
        tx_1519_max,
        /// Received unicast frames without errors.
        rx_unicast,
        /// Received multicast and broadcast frames without errors.
        rx_mcastbcast,
        /// Received frames without a VLAN tag and without errors.
        rx_untagged,
        /// Received frames with a VLAN tag and without errors.
        rx_vlan,
        /// Received frames of up to 60 bytes, without frame check sequence.
        rx_64_size,
        /// Received frames of 61 to 123 bytes, without frame check sequence.
        rx_65_127,
        /// Received frames of 124 to 251 bytes, without frame check sequence.
        rx_128_255,
        /// Received frames of 252 to 507 bytes, without frame check sequence.
        rx_256_511,
        /// Received frames of 508 to 1019 bytes, without frame check sequence.
        rx_512_1023,
        /// Received frames of 1020 to 1514 bytes, without frame check sequence.
        rx_1024_1518,
        /// Received frames of 1515 bytes and more, without frame check sequence.
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
