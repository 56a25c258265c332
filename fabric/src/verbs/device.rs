//! An open device, with the objects that a port and one of its workers share.
//!
//! Workers share the context and nothing else. A device is closed when its last owner drops it: the port,
//! a worker's table, posted work, or address handles being created. A failing device is closed as a whole
//! and opened again.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};

use proto::{CmChoice, IbMtu};

use super::config::VerbsConfig;
use super::connections::CmAgent;
use super::grh::GRH_LEN;
use super::ibv::{
    CompletionChannel, CompletionQueue, Context, DeviceAttributes, LinkLayer, Place, Pool,
    ProtectionDomain, SharedReceiveQueue,
};
use super::lock;
use super::open;
use super::sys::Library;
use crate::port::FabricError;

/// Bytes of a transmit place: the largest frame of a TAP, or a message.
pub const TRANSMIT_LEN: usize = 1 << 16;

/// Number of transmit places.
const TRANSMITS: usize = 64;

/// Bytes of a receive place for messages.
const MESSAGE_LEN: usize = 1 << 16;

/// Number of receive places for messages.
const MESSAGES: usize = 128;

/// Number of receive places for datagrams: two of the largest trains from each of eight peers.
const DATAGRAMS: usize = 1024;

/// Receive places of each queue pair without shared receive queues (two of the largest trains), and the
/// number of queue pairs that have places then.
const OWN_DATAGRAMS: usize = 128;
const OWN_QUEUES: usize = 32;

/// Bytes of a receive place for datagrams: fits every MTU of the port, and shares no cache line with
/// the next place.
const DATAGRAM_LEN: usize = (GRH_LEN + IbMtu::B4096.bytes() as usize).next_multiple_of(64);

/// Bytes of all places of a worker, if the device allows so many.
pub const BUFFERS: usize =
    TRANSMITS * TRANSMIT_LEN + DATAGRAMS * DATAGRAM_LEN + MESSAGES * MESSAGE_LEN;

/// Maximum number of packets in a train.
const TRAIN_PACKETS: usize = 64;

/// Requested bytes of inline data. More makes every work request of today's NICs larger, and with it
/// the rings.
const INLINE: u32 = 128;

/// Maximum outstanding packets of one UD queue pair.
const UD_QUEUE: usize = 1024;

/// Maximum outstanding packets of all UD queue pairs, and messages of all connections.
const UD_SENDS: usize = 4096;
const RC_SENDS: usize = 4096;

/// Limits of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Maximum number of packets in a train.
    pub train_packets: usize,
    /// Maximum outstanding packets of one UD queue pair.
    pub ud_queue: usize,
    /// Maximum outstanding packets of all UD queue pairs.
    pub ud_sends: usize,
    /// Maximum outstanding messages of all connections.
    pub rc_sends: usize,
    /// Number of receive places for datagrams.
    pub datagrams: usize,
    /// Receive places of each queue pair; 0 with a shared receive queue.
    pub own_datagrams: usize,
    /// Number of receive places for messages; 0 without connections.
    pub messages: usize,
    /// Requested bytes of inline data.
    pub inline: u32,
    /// Maximum number of multicast groups.
    pub groups: usize,
}

impl Limits {
    /// Computes the limits of a device.
    ///
    /// # Errors
    /// The missing capability.
    pub fn of(device: &DeviceAttributes, connections: bool) -> Result<Limits, &'static str> {
        if device.max_cqe < 2 || device.max_qp_wr == 0 {
            return Err("its queues have no entries");
        }
        let cqe = device.max_cqe as usize;
        let wr = device.max_qp_wr as usize;
        let shared = device.max_srq > 0 && device.max_srq_wr > 0;
        let srq = device.max_srq_wr as usize;
        // Two shared receive queues: one for datagrams, one for messages.
        let connections = connections && device.max_srq >= 2 && device.max_sge > 0;
        let ud_sends = UD_SENDS.min(cqe / 2);
        let messages = if connections {
            MESSAGES.min(srq).min(cqe / 2)
        } else {
            0
        };
        let ud_queue = UD_QUEUE.min(wr).min(ud_sends);
        let (datagrams, own_datagrams) = if shared {
            (DATAGRAMS.min(srq).min(cqe - messages), 0)
        } else {
            let own = OWN_DATAGRAMS.min(wr).min(cqe);
            ((own * OWN_QUEUES).min(cqe), own)
        };
        Ok(Limits {
            train_packets: TRAIN_PACKETS.min(ud_queue),
            ud_queue,
            ud_sends,
            rc_sends: RC_SENDS.min(cqe - ud_sends),
            datagrams,
            own_datagrams,
            messages,
            inline: INLINE,
            groups: device.max_mcast_grp as usize,
        })
    }

    /// Maximum number of endpoints that can receive; `None`: limited by queue pairs only.
    pub fn endpoints(&self) -> Option<usize> {
        self.datagrams.checked_div(self.own_datagrams)
    }
}

/// The memory of the worker.
#[derive(Debug)]
pub struct Stock {
    /// Transmit places.
    pub transmit: (Pool, Vec<Place>),
    /// Receive places for datagrams.
    pub datagrams: (Pool, Vec<Place>),
    /// Receive places for messages, if there are connections.
    pub messages: Option<(Pool, Vec<Place>)>,
}

/// The objects of one worker on an open device.
pub struct Device {
    /// Limits of the device.
    pub limits: Limits,
    /// Attributes of the device.
    pub attributes: DeviceAttributes,
    stock: Mutex<Option<Stock>>,
    /// The regions of registered memory: local key and bytes.
    pub regions: Vec<(u32, usize)>,
    /// Shared receive queue for datagrams; `None` if each queue pair has its own queue.
    pub datagrams: Option<Arc<SharedReceiveQueue>>,
    /// Shared receive queue for messages, if there are connections.
    pub messages: Option<Arc<SharedReceiveQueue>>,
    /// Completion queue of receives.
    pub receive_cq: Arc<CompletionQueue>,
    /// Completion queue of sends.
    pub send_cq: Arc<CompletionQueue>,
    /// The agent of communication management, which the workers share.
    pub cm_agent: Arc<CmAgent>,
    /// Completion channel of both queues.
    pub channel: Arc<CompletionChannel>,
    /// Protection domain of all objects.
    pub domain: Arc<ProtectionDomain>,
    /// Context of the device.
    pub context: Arc<Context>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.context.name()).finish()
    }
}

/// An open device, with the objects of each worker.
#[derive(Debug)]
pub struct Opened {
    /// The objects of the first worker, which receives.
    pub first: Arc<Device>,
    others: Vec<Arc<Device>>,
}

impl Opened {
    /// The objects of all workers, in order.
    pub fn workers(&self) -> impl Iterator<Item = &Arc<Device>> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl Device {
    /// Opens a device and creates the objects of each worker.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] with what is missing and what to do; [`FabricError::Os`].
    pub fn open(library: &Arc<dyn Library>, config: &VerbsConfig) -> Result<Opened, FabricError> {
        let name = config.name();
        let context = open::device(library, &config.device)?;
        let attributes = context
            .query_device()
            .map_err(failed(&name, "cannot query the device"))?;
        open::check_port(config, attributes.ports)?;
        let info = context
            .query_port(config.port)
            .map_err(failed(&name, "cannot query the port"))?;
        let off = info.link_layer == LinkLayer::InfiniBand && config.cm == CmChoice::Off;
        let connections = config.message_max > 0 && !off;
        let limits = Limits::of(&attributes, connections)
            .map_err(|lack| FabricError::Unusable(format!("cannot use {name}: {lack}")))?;
        let cm_agent = CmAgent::new(config).map(Arc::new);
        let cm_agent = cm_agent.map_err(failed(&name, "cannot create an eventfd"))?;
        let of_worker =
            || Device::of_worker(&context, &name, attributes.clone(), limits, &cm_agent);
        Ok(Opened {
            first: of_worker()?,
            others: (1..config.workers)
                .map(|_| of_worker())
                .collect::<Result<_, _>>()?,
        })
    }

    fn of_worker(
        context: &Arc<Context>,
        name: &str,
        attributes: DeviceAttributes,
        limits: Limits,
        cm_agent: &Arc<CmAgent>,
    ) -> Result<Arc<Device>, FabricError> {
        let domain = ProtectionDomain::new(context)
            .map_err(failed(name, "cannot create a protection domain"))?;
        let channel = CompletionChannel::new(context)
            .map_err(failed(name, "cannot create a completion channel"))?;
        let queue = |capacity| {
            CompletionQueue::new(&channel, capacity)
                .map_err(failed(name, "cannot create a completion queue"))
        };
        let receive_cq = queue(limits.datagrams + limits.messages)?;
        let send_cq = queue(limits.ud_sends + limits.rc_sends)?;
        let shared = |capacity: usize| {
            SharedReceiveQueue::new(&domain, capacity as u32)
                .map_err(failed(name, "cannot create a shared receive queue"))
        };
        let datagrams = match limits.own_datagrams {
            0 => Some(shared(limits.datagrams)?),
            _ => None,
        };
        let messages = match limits.messages {
            0 => None,
            count => Some(shared(count)?),
        };
        let bytes = TRANSMITS * TRANSMIT_LEN
            + limits.datagrams * DATAGRAM_LEN
            + limits.messages * MESSAGE_LEN;
        let pool = |count, len| {
            Pool::new(&domain, count, len).map_err(|e| open::out_of_memory(name, bytes as u64, &e))
        };
        let stock = Stock {
            transmit: pool(TRANSMITS, TRANSMIT_LEN)?,
            datagrams: pool(limits.datagrams, DATAGRAM_LEN)?,
            messages: match limits.messages {
                0 => None,
                count => Some(pool(count, MESSAGE_LEN)?),
            },
        };
        let pools = [&stock.transmit, &stock.datagrams].into_iter();
        let regions = pools.chain(&stock.messages).filter_map(|(pool, places)| {
            Some((places.first()?.lkey(), places.len() * pool.place_len()))
        });
        Ok(Arc::new(Device {
            regions: regions.collect(),
            limits,
            attributes,
            stock: Mutex::new(Some(stock)),
            datagrams,
            messages,
            receive_cq,
            send_cq,
            cm_agent: Arc::clone(cm_agent),
            channel,
            domain,
            context: Arc::clone(context),
        }))
    }

    /// The memory of the worker; `None` after the first call.
    pub fn take_stock(&self) -> Option<Stock> {
        lock(&self.stock).take()
    }
}

/// The error of a call that failed; `what` could not be done.
fn failed(name: &str, what: &str) -> impl FnOnce(io::Error) -> FabricError + use<> {
    let what = format!("{name}: {what}");
    move |source| FabricError::Os { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Guid;

    const LARGE: DeviceAttributes = DeviceAttributes {
        node_guid: Guid([0; 8]),
        ports: 1,
        max_qp: 1 << 16,
        max_qp_wr: 1 << 15,
        max_sge: 30,
        max_cqe: 1 << 22,
        max_mcast_grp: 1 << 13,
        max_srq: 1 << 15,
        max_srq_wr: 1 << 15,
        ud_ip_csum: true,
        moderation: (0, 0),
    };

    fn limits(device: &DeviceAttributes) -> Limits {
        Limits::of(device, true).unwrap()
    }

    #[test]
    fn queue_pairs_of_a_device_with_shared_receive_queues_share() {
        let all = limits(&LARGE);
        assert_eq!((all.datagrams, all.own_datagrams), (DATAGRAMS, 0));
        assert_eq!((all.messages, all.endpoints()), (MESSAGES, None));
        let one = DeviceAttributes {
            max_srq: 1,
            ..LARGE
        };
        let one = limits(&one);
        assert_eq!((one.datagrams, one.messages), (DATAGRAMS, 0));
    }

    #[test]
    fn without_them_each_has_its_own_and_there_are_no_connections() {
        for without in [
            DeviceAttributes {
                max_srq: 0,
                ..LARGE
            },
            DeviceAttributes {
                max_srq_wr: 0,
                ..LARGE
            },
        ] {
            let limits = limits(&without);
            assert_eq!(limits.own_datagrams, OWN_DATAGRAMS);
            assert_eq!(limits.endpoints(), Some(OWN_QUEUES));
            assert_eq!(limits.messages, 0);
        }
        // No more is posted than can complete.
        let small = DeviceAttributes {
            max_srq: 0,
            max_qp_wr: 16,
            max_cqe: 100,
            ..LARGE
        };
        let small = limits(&small);
        assert_eq!((small.own_datagrams, small.datagrams), (16, 100));
        assert_eq!(small.endpoints(), Some(6));
    }

    #[test]
    fn a_device_without_queues_is_refused() {
        for (max_cqe, max_qp_wr) in [(1, 1 << 15), (1 << 22, 0)] {
            let device = DeviceAttributes {
                max_cqe,
                max_qp_wr,
                ..LARGE
            };
            assert!(Limits::of(&device, true).is_err());
        }
    }
}
