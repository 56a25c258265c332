//! What the lanes of all payloads have: a link's part in one data thread.

use std::io::IoSlice;

use fabric::{AddressHandle, AhAttributes, EndpointId, Gid, QKey, Qpn, UdDestination, Worker};
use ipoib::Time;
use netdev::coalesce::CoalesceConfig;
use netdev::tap::TapQueue;

use super::priority::Priorities;
use super::stats::TapStats;
use super::train::OpenTrain;

/// Names what a data thread serves: an IPoIB interface's link, the link of a VLAN on one, a VNIC's link,
/// or an endpoint of management. Never reused while the daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct LinkId(pub u32);

/// What stays as it is while a lane is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneInit {
    /// The link.
    pub id: LinkId,
    /// Its UD endpoint.
    pub endpoint: EndpointId,
    /// The Q_Key of its datagrams.
    pub qkey: QKey,
    /// Whether the kernel takes coalesced UDP from the TAP.
    pub uso: bool,
}

/// A TAP queue, an endpoint, and what is counted of the queue. The protocol core stands beside it.
pub struct LaneBase {
    /// The link.
    pub id: LinkId,
    /// Its UD endpoint.
    pub endpoint: EndpointId,
    /// The Q_Key of its datagrams.
    pub qkey: QKey,
    /// The TAP queue.
    pub tap: TapQueue,
    /// Whether this thread reads that queue. An interface with fewer queues than the port has threads
    /// shares them for writing, since its packets may arrive at any thread.
    pub reads: bool,
    /// What received segments are merged with.
    pub coalescing: CoalesceConfig,
    /// Whether the kernel takes coalesced UDP from the TAP.
    uso: bool,
    /// Address handles for packets with a priority.
    pub priorities: Priorities,
    /// Counters of the TAP queue.
    pub stats: TapStats,
}

impl LaneBase {
    /// A lane's, which writes to this queue, and reads it or does not.
    pub fn new(init: &LaneInit, tap: TapQueue, reads: bool) -> LaneBase {
        LaneBase {
            id: init.id,
            endpoint: init.endpoint,
            qkey: init.qkey,
            tap,
            reads,
            coalescing: CoalesceConfig::default(),
            uso: init.uso,
            priorities: Priorities::default(),
            stats: TapStats::default(),
        }
    }

    /// Whether received segments are merged, as `ethtool -K gro` says.
    pub fn set_coalesce(&mut self, on: bool) {
        self.coalescing = CoalesceConfig {
            tcp: on,
            udp: on && self.uso,
            ..CoalesceConfig::default()
        };
    }

    /// Writes one frame, virtio-net header first; false if the TAP does not take it.
    #[inline]
    pub fn write(&mut self, parts: &[IoSlice<'_>]) -> bool {
        let taken = self.tap.write_vectored(parts).is_ok();
        if taken {
            self.stats.tap_writes += 1;
        } else {
            self.stats.tap_write_errors += 1;
        }
        taken
    }

    /// Where a queue pair is on the fabric for what is sent in the priority of the moment. Without a
    /// priority that is the handle that the core has, `known`, or a new one, which `keep` gives it.
    #[inline]
    pub fn destination(
        &mut self,
        fabric: &mut dyn Worker,
        (gid, qpn): (Gid, Qpn),
        known: Option<AddressHandle>,
        keep: impl FnOnce(AddressHandle),
    ) -> Option<UdDestination> {
        let ah = if self.priorities.is_raised() {
            self.priorities.handle(fabric, gid)?
        } else {
            match known {
                Some(ah) => ah,
                None => {
                    let ah = fabric.create_ah(&AhAttributes::to(gid)).ok()?;
                    keep(ah);
                    ah
                }
            }
        };
        let qkey = self.qkey;
        Some(UdDestination { ah, qpn, qkey })
    }

    /// Destroys the address handles that nothing names any more, after the last send that names them: those
    /// for priorities, and those that the core releases.
    pub fn release_ahs(
        &mut self,
        fabric: &mut dyn Worker,
        train: &mut OpenTrain,
        mut of_core: impl FnMut() -> Option<AddressHandle>,
    ) {
        let of_core = std::iter::from_fn(&mut of_core);
        for ah in self.priorities.released().chain(of_core) {
            train.flush(fabric);
            fabric.destroy_ah(ah);
        }
    }
}

/// What [`super::lanes::Lanes`] asks of a lane.
pub trait Served {
    /// What all lanes have.
    fn base(&self) -> &LaneBase;
    /// The queue pair that frames for it are handed over by, if they are so.
    fn qpn(&self) -> Option<Qpn>;
    /// When its core wants to be woken.
    fn next_deadline(&self) -> Option<Time>;
    /// Destroys the address handles that its core no longer names, after the last send that names them.
    fn release_ahs(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain);
    /// Destroys all of them: the lane goes.
    fn release_all(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain);
}
