//! A UD endpoint on the control thread. Its queue pair follows the port's P_Key table.

use proto::{EndpointId, PKey, Psn, QKey, Qpn};

use super::qp::{QueuePair, Service};
use super::snapshot::Endpoint;
use crate::pkeys::Entry;
use crate::port::FabricError;

/// An endpoint. While the table lacks the endpoint's partition, its queue pair is in RESET and the
/// workers do not know the endpoint. The queue pair number stays reserved.
#[derive(Debug)]
pub struct UdQueuePair {
    id: EndpointId,
    partition: PKey,
    qkey: QKey,
    qp: QueuePair,
    entry: Option<Entry>,
    starts: u32,
}

impl UdQueuePair {
    /// Creates an endpoint without an entry of the table.
    pub const fn new(id: EndpointId, qpn: Qpn, partition: PKey, qkey: QKey) -> UdQueuePair {
        UdQueuePair {
            id,
            partition,
            qkey,
            qp: QueuePair::new(Service::Ud, qpn),
            entry: None,
            starts: 0,
        }
    }

    /// Restarts the queue pair if the value or index of its entry has changed (kernel
    /// drivers/infiniband/ulp/ipoib/ipoib_ib.c, `update_child_pkey`). `psn` is the first one to send.
    /// Returns whether the entry has changed.
    pub fn follow(&mut self, entry: Option<Entry>, psn: Psn) -> bool {
        if entry == self.entry {
            return false;
        }
        self.entry = entry;
        if let Err(e) = self.restart(psn) {
            // Cannot happen: the attributes are those that the transitions require.
            log::error!("cannot restart queue pair {}: {e}", self.qp.qpn());
            self.entry = None;
        }
        true
    }

    /// Changes the Q_Key and restarts the queue pair with it. Returns whether the Q_Key has changed.
    ///
    /// # Errors
    /// Never: the attributes are those that the transitions require.
    pub fn set_qkey(&mut self, qkey: QKey, psn: Psn) -> Result<bool, FabricError> {
        let changed = std::mem::replace(&mut self.qkey, qkey) != qkey;
        if changed {
            self.restart(psn)?;
        }
        Ok(changed)
    }

    fn restart(&mut self, psn: Psn) -> Result<(), FabricError> {
        self.qp.stop()?;
        if let Some(entry) = self.entry {
            self.qp.start(entry.index, self.qkey, psn)?;
            self.starts = self.starts.wrapping_add(1);
        }
        Ok(())
    }

    /// The workers' view of the endpoint; `None` while the endpoint waits for its partition.
    pub fn working(&self) -> Option<Endpoint> {
        Some(Endpoint {
            id: self.id,
            qp: self.qp,
            pkey: self.entry?.pkey,
            starts: self.starts,
        })
    }

    /// The endpoint's id.
    pub const fn id(&self) -> EndpointId {
        self.id
    }

    /// The endpoint's queue pair.
    pub const fn qp(&self) -> &QueuePair {
        &self.qp
    }

    /// The Q_Key of the endpoint.
    pub const fn qkey(&self) -> QKey {
        self.qkey
    }

    /// The requested partition.
    pub const fn partition(&self) -> PKey {
        self.partition
    }

    /// The P_Key of the table entry in use.
    pub fn pkey(&self) -> Option<PKey> {
        self.entry.map(|e| e.pkey)
    }
}

#[cfg(test)]
mod tests {
    use super::super::qp::State;
    use super::*;

    fn entry(index: u16, pkey: u16) -> Option<Entry> {
        let pkey = PKey::new(pkey);
        Some(Entry { index, pkey })
    }

    #[test]
    fn c88_another_place_or_value_restarts_the_queue_pair_and_the_same_does_not() {
        let (id, qpn) = (EndpointId(1), Qpn::new(0x4a));
        let mut ud = UdQueuePair::new(id, qpn, PKey::new(0x8001), QKey::IPOIB_DEFAULT);
        assert_eq!(ud.qp().state(), State::Reset);
        assert!(ud.working().is_none());
        let mut psn = 0;
        for (to, changes) in [
            (None, false),
            (entry(3, 0x8001), true),
            (entry(3, 0x8001), false),
            (entry(2, 0x8001), true),
            (entry(2, 0x0001), true),
            (None, true),
            (None, false),
            (entry(2, 0x0001), true),
        ] {
            let before = (ud.starts, ud.qp().sq_psn());
            psn += 1;
            assert_eq!(ud.follow(to, Psn::new(psn)), changes, "{to:?}");
            assert_eq!((ud.qp().qpn(), ud.pkey()), (qpn, to.map(|e| e.pkey)));
            match (to, ud.working()) {
                (Some(to), Some(e)) => {
                    assert_eq!((e.qp.state(), e.qp.pkey_index()), (State::Rts, to.index));
                    assert_eq!(e.qp.qkey(), QKey::IPOIB_DEFAULT);
                    assert_eq!(e.starts != before.0, changes);
                    assert_eq!(e.qp.sq_psn() != before.1, changes);
                }
                (None, None) => assert_eq!(ud.qp().state(), State::Reset),
                other => panic!("{other:?}"),
            }
        }
    }
}
