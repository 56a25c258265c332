//! Counters of a worker.

proto::counters! {
    /// Counters of one worker since its creation.
    pub struct Counts {
        /// Packets delivered.
        rx_packets,
        /// Payload bytes delivered.
        rx_bytes,
        /// Multicast packets delivered.
        rx_multicast,
        /// Own multicast packets that came back and were dropped.
        rx_own_multicast,
        /// Packets for queue pairs that no longer exist.
        rx_bad_qp,
        /// Packets shorter than the route before them or longer than their place, or without a required
        /// route.
        rx_malformed,
        /// Receives that completed with an error.
        rx_failed,
        /// Packets sent.
        tx_packets,
        /// Payload bytes sent.
        tx_bytes,
        /// Trains sent, one post list each.
        tx_trains,
        /// Trains that found no room.
        tx_blocked,
        /// Trains refused by the device or by a check.
        tx_failed,
        /// Trains with packets over the MTU.
        tx_too_big,
        /// Trains that waited for their address handle.
        tx_waited,
        /// Trains dropped because their address handle cannot be created, or because too many wait.
        tx_no_ah,
        /// Address handles created.
        ah_made,
        /// Address handles that could not be created.
        ah_failed,
        /// Restarts of queue pairs.
        qp_restarts,
        /// Completions.
        cq_completions,
        /// Completions with an error.
        cq_errors,
        /// Completions that match no posted work.
        cq_unknown,
        /// Events of completion channels.
        cq_events,
        /// Completion queues armed.
        cq_arms,
        /// Post lists, sends and receives.
        post_lists,
        /// Calls of the verbs library on the data path: posts, polls, arms, events.
        verbs_calls,
    }
}
