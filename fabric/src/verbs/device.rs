//! An open device, with the objects that a port and its worker share.
//!
//! Everything of a device goes when the last of those who hold it let go: the port, the worker's table,
//! what is posted, and address handles that are being made. When a device fails it is given up as a
//! whole and opened anew.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use proto::IbMtu;

use super::config::VerbsConfig;
use super::grh::GRH_LEN;
use super::ibv::{
    CompletionChannel, CompletionQueue, Context, DeviceAttributes, LinkLayer, Place, Pool,
    ProtectionDomain, SharedReceiveQueue,
};
use super::open;
use super::sys::Library;
use crate::port::FabricError;

/// Bytes of a place to send from: the largest frame of a TAP, or a message.
pub const TRANSMIT_LEN: usize = 1 << 16;

/// Places to send from.
const TRANSMITS: usize = 64;

/// Bytes of a place that a message is received in.
const MESSAGE_LEN: usize = 1 << 16;

/// Places that messages are received in.
const MESSAGES: usize = 128;

/// Places that datagrams are received in: two of the largest trains for each of eight peers.
const DATAGRAMS: usize = 1024;

/// Places that a queue pair has for itself where there are no shared receive queues: two of the largest
/// trains; and queue pairs that there are enough places for.
const OWN_DATAGRAMS: usize = 128;
const OWN_QUEUES: usize = 32;

/// Bytes of a place that a datagram is received in: whatever MTU the port may get, and no other
/// datagram's cache line.
const DATAGRAM_LEN: usize = (GRH_LEN + IbMtu::B4096.bytes() as usize).next_multiple_of(64);

/// Bytes of all places, where the device allows as many.
pub const BUFFERS: usize =
    TRANSMITS * TRANSMIT_LEN + DATAGRAMS * DATAGRAM_LEN + MESSAGES * MESSAGE_LEN;

/// Packets of a train.
const TRAIN_PACKETS: usize = 64;

/// Bytes that a device is asked to take a copy of when they are posted. More makes every work request
/// of today's NICs larger, and with it the rings.
const INLINE: u32 = 128;

/// Packets that one UD queue pair has outstanding.
const UD_QUEUE: usize = 1024;

/// Packets that all UD queue pairs have outstanding, and messages of all connections.
const UD_SENDS: usize = 4096;
const RC_SENDS: usize = 4096;

/// How much of everything there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Packets of a train.
    pub train_packets: usize,
    /// Packets that one UD queue pair has outstanding.
    pub ud_queue: usize,
    /// Packets that all UD queue pairs have outstanding.
    pub ud_sends: usize,
    /// Messages that all connections have outstanding.
    pub rc_sends: usize,
    /// Places that datagrams are received in.
    pub datagrams: usize,
    /// How many of them each queue pair has for itself; 0 where they share a receive queue.
    pub own_datagrams: usize,
    /// Places that messages are received in; 0 where there are no connections.
    pub messages: usize,
    /// Bytes to be asked for inline.
    pub inline: u32,
    /// Multicast groups.
    pub groups: usize,
}

impl Limits {
    /// What a device allows.
    ///
    /// # Errors
    /// What it lacks.
    pub fn of(device: &DeviceAttributes, connections: bool) -> Result<Limits, &'static str> {
        if device.max_cqe < 2 || device.max_qp_wr == 0 {
            return Err("it has no room in its queues");
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

    /// How many endpoints can receive; `None`: as many as there may be queue pairs.
    pub fn endpoints(&self) -> Option<usize> {
        self.datagrams.checked_div(self.own_datagrams)
    }
}

/// What belongs to the worker alone.
#[derive(Debug)]
pub struct Stock {
    /// To send from.
    pub transmit: (Pool, Vec<Place>),
    /// For datagrams.
    pub datagrams: (Pool, Vec<Place>),
    /// For messages, where there are connections.
    pub messages: Option<(Pool, Vec<Place>)>,
}

/// An open device.
pub struct Device {
    /// How much of everything there is.
    pub limits: Limits,
    /// What it says of itself.
    pub attributes: DeviceAttributes,
    stock: Mutex<Option<Stock>>,
    /// Where datagrams are received; none where each queue pair has a queue of its own.
    pub datagrams: Option<Arc<SharedReceiveQueue>>,
    /// Where messages are received, where there are connections.
    pub messages: Option<Arc<SharedReceiveQueue>>,
    /// Completions of receives.
    pub receive_cq: Arc<CompletionQueue>,
    /// Completions of sends.
    pub send_cq: Arc<CompletionQueue>,
    /// Wakes for both.
    pub channel: Arc<CompletionChannel>,
    /// What everything is made in.
    pub domain: Arc<ProtectionDomain>,
    /// The device itself.
    pub context: Arc<Context>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.context.name()).finish()
    }
}

impl Device {
    /// Opens a device and makes what a worker needs.
    ///
    /// # Errors
    /// [`FabricError::Unusable`] with what is missing and how to get on; [`FabricError::Os`].
    pub fn open(
        library: &Arc<dyn Library>,
        config: &VerbsConfig,
    ) -> Result<Arc<Device>, FabricError> {
        let name = config.name();
        let failed = |what: &str| {
            let what = format!("{name}: {what}");
            move |source: io::Error| FabricError::Os { what, source }
        };
        let context = open::device(library, &config.device)?;
        let attributes = context
            .query_device()
            .map_err(failed("the device cannot be asked what it can do"))?;
        if config.port == 0 || config.port > attributes.ports {
            return Err(open::no_such_port(
                &config.device,
                config.port,
                attributes.ports,
            ));
        }
        let info = context
            .query_port(config.port)
            .map_err(failed("the port cannot be asked what it is like"))?;
        // Nothing resolves an address there without subnet administration.
        let connections = config.message_max > 0 && info.link_layer == LinkLayer::Ethernet;
        let limits = Limits::of(&attributes, connections)
            .map_err(|lack| FabricError::Unusable(format!("{name} cannot be used: {lack}")))?;
        let domain =
            ProtectionDomain::new(&context).map_err(failed("no protection domain can be made"))?;
        let channel = CompletionChannel::new(&context)
            .map_err(failed("no completion channel can be made"))?;
        let queue = |capacity| {
            CompletionQueue::new(&channel, capacity)
                .map_err(failed("no completion queue can be made"))
        };
        let receive_cq = queue(limits.datagrams + limits.messages)?;
        let send_cq = queue(limits.ud_sends + limits.rc_sends)?;
        let shared = |capacity: usize| {
            SharedReceiveQueue::new(&domain, capacity as u32)
                .map_err(failed("no shared receive queue can be made"))
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
            Pool::new(&domain, count, len).map_err(|e| open::out_of_memory(&name, bytes as u64, &e))
        };
        let stock = Stock {
            transmit: pool(TRANSMITS, TRANSMIT_LEN)?,
            datagrams: pool(limits.datagrams, DATAGRAM_LEN)?,
            messages: match limits.messages {
                0 => None,
                count => Some(pool(count, MESSAGE_LEN)?),
            },
        };
        Ok(Arc::new(Device {
            limits,
            attributes,
            stock: Mutex::new(Some(stock)),
            datagrams,
            messages,
            receive_cq,
            send_cq,
            channel,
            domain,
            context,
        }))
    }

    /// What belongs to the worker, once.
    pub fn take_stock(&self) -> Option<Stock> {
        self.stock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
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
        max_mr_size: u64::MAX,
        max_mcast_grp: 1 << 13,
        max_mcast_qp_attach: 240,
        max_ah: 0,
        max_srq: 1 << 15,
        max_srq_wr: 1 << 15,
        max_qp_rd_atom: 16,
        ud_ip_csum: true,
        rc_ip_csum: false,
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
        // What is posted never exceeds what completes.
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
