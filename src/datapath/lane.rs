//! The common part of all lanes. A lane is a link's part in one data thread.

use std::io::IoSlice;

use fabric::{
    AddressHandle, AhAttributes, EndpointId, Gid, PKey, QKey, Qpn, Room, UdDestination, Worker,
};
use ipoib::Time;
use netdev::coalesce::CoalesceConfig;
use netdev::tap::TapQueue;

use super::priority::Priorities;
use super::stats::TapStats;
use super::train::OpenTrain;

/// Identifies a link: of an IPoIB interface, of a VLAN on an IPoIB interface, of a VNIC, or of the management
/// of a port. Never reused while the daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct LinkId(pub u32);

/// Constant properties of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneInit {
    /// The link.
    pub id: LinkId,
    /// Its UD endpoint.
    pub endpoint: EndpointId,
    /// The partition.
    pub pkey: PKey,
    /// Whether the kernel accepts coalesced UDP from the TAP.
    pub uso: bool,
}

/// A TAP queue with its counters, and an endpoint. The lane of a payload adds the protocol core.
pub struct LaneBase {
    /// The link.
    pub id: LinkId,
    /// Its UD endpoint.
    pub endpoint: EndpointId,
    /// The partition.
    pub pkey: PKey,
    /// The TAP queue.
    pub tap: TapQueue,
    /// Whether this thread reads the queue. If an interface has fewer queues than the port has threads,
    /// threads share a queue for writing, because packets may arrive at any thread.
    pub reads: bool,
    /// How received segments are coalesced.
    pub coalescing: CoalesceConfig,
    /// Whether the kernel accepts coalesced UDP from the TAP.
    uso: bool,
    /// Address handles for packets with a priority.
    pub priorities: Priorities,
    /// Counters of the TAP queue.
    pub stats: TapStats,
}

impl LaneBase {
    /// Creates the base of a lane that writes to this queue. `reads`: the lane also reads the queue.
    pub fn new(init: &LaneInit, tap: TapQueue, reads: bool) -> LaneBase {
        LaneBase {
            id: init.id,
            endpoint: init.endpoint,
            pkey: init.pkey,
            tap,
            reads,
            coalescing: CoalesceConfig::default(),
            uso: init.uso,
            priorities: Priorities::default(),
            stats: TapStats::default(),
        }
    }

    /// Sets whether received segments are coalesced (`ethtool -K gro`).
    pub fn set_coalesce(&mut self, on: bool) {
        self.coalescing = CoalesceConfig {
            tcp: on,
            udp: on && self.uso,
            ..CoalesceConfig::default()
        };
    }

    /// Writes one frame, virtio-net header first; false if the TAP refuses it.
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

    /// The destination of a packet to a queue pair in the current priority. In priority 0 the address handle
    /// is `known`, the one in the core, or a new one, which `keep` stores in the core. `None` if the fabric
    /// cannot create the handle.
    #[inline]
    pub fn destination(
        &mut self,
        fabric: &mut dyn Worker,
        (gid, qpn): (Gid, Qpn),
        known: Option<AddressHandle>,
        keep: impl FnOnce(AddressHandle),
    ) -> Option<UdDestination> {
        let ah = if self.priorities.is_raised() {
            self.priorities.handle(fabric, (gid, self.pkey))?
        } else {
            match known {
                Some(ah) => ah,
                None => {
                    let ah = fabric.create_ah(&AhAttributes::to(gid, self.pkey)).ok()?;
                    keep(ah);
                    ah
                }
            }
        };
        // All members of a partition or switch have the Q_Key of its group.
        let qkey = QKey::OWN;
        Some(UdDestination { ah, qpn, qkey })
    }

    /// Destroys released address handles, of priorities and of the core, after the last send that uses them.
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

/// A lane in [`super::lanes::Lanes`].
pub trait Served {
    /// The common part.
    fn base(&self) -> &LaneBase;
    /// The queue pair by which siblings find the lane, if they do.
    fn qpn(&self) -> Option<Qpn>;
    /// What the fabric must have room for before a frame of the TAP is read.
    fn needs(&self) -> Room;
    /// The next timer of the core.
    fn next_deadline(&self) -> Option<Time>;
    /// Destroys released address handles, after the last send that uses them.
    fn release_ahs(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain);
    /// Destroys all address handles: the lane is removed.
    fn release_all(&mut self, fabric: &mut dyn Worker, train: &mut OpenTrain);
}
