//! Notifications of changes by ethtool(8) (kernel Documentation/networking/ethtool-netlink.rst). rtnetlink
//! does not report them.

use std::os::fd::{AsFd, BorrowedFd};

use netlink_sys::protocols::NETLINK_GENERIC;

use crate::Error;
use crate::attributes::{attributes, text_of, u16_of, u32_of};
use crate::listener::{Listener, Reach};
use crate::transport::{Message, Raw, Transport};

// Kernel include/uapi/linux/genetlink.h.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_NEWFAMILY: u8 = 1;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;

/// Bytes of `struct genlmsghdr`: command, version, two reserved.
const HEADER_LEN: usize = 4;

// Kernel include/uapi/linux/ethtool_netlink.h and ethtool_netlink_generated.h.
const FAMILY: &str = "ethtool";
const MONITOR_GROUP: &str = "monitor";
const ETHTOOL_MSG_COALESCE_NTF: u8 = 21;
const ETHTOOL_A_COALESCE_HEADER: u16 = 1;
const ETHTOOL_A_COALESCE_RX_USECS: u16 = 2;
const ETHTOOL_A_COALESCE_RX_MAX_FRAMES: u16 = 3;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_HEADER_DEV_NAME: u16 = 2;

/// A change by ethtool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EthtoolEvent {
    /// New settings of interrupt moderation (`ethtool -C`).
    Coalesce {
        /// The id of the interface's namespace; `None` for the monitor's own namespace.
        nsid: Option<i32>,
        /// The interface's index in its namespace.
        ifindex: u32,
        /// The interface's name in its namespace.
        name: String,
        /// Frames after which a receive is reported, 0 for no limit; `None` if the driver lacks the
        /// setting.
        rx_frames: Option<u32>,
        /// Microseconds after which a receive is reported; `None` if the driver lacks the setting, as TAP
        /// does.
        rx_usecs: Option<u32>,
    },
    /// Notifications were lost: read everything again.
    Overrun,
}

/// Receives ethtool notifications of the same namespaces as [`crate::Monitor::across_namespaces`]. The
/// descriptor is readable while events wait.
#[derive(Debug)]
pub struct EthtoolMonitor {
    listener: Listener,
    family: u16,
}

impl EthtoolMonitor {
    /// Opens the socket and subscribes. `None` if the kernel lacks the family (before 5.6, or built without
    /// ETHTOOL_NETLINK). Kernels before 5.7 do not report moderation.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn new() -> Result<Option<EthtoolMonitor>, Error> {
        let Some(found) = find(&mut Transport::open(NETLINK_GENERIC)?)? else {
            return Ok(None);
        };
        let listener = Listener::open(NETLINK_GENERIC, Reach::All)?;
        listener
            .subscribe(found.monitor)
            .map_err(|e| Error::socket("subscribe to ethtool notifications", e))?;
        Ok(Some(EthtoolMonitor {
            listener,
            family: found.id,
        }))
    }

    /// Returns the waiting events, oldest first. Never blocks. Unknown messages are skipped.
    pub fn drain(&mut self) -> Vec<EthtoolEvent> {
        let family = self.family;
        let read = self
            .listener
            .drain(|message| event(message, family), || EthtoolEvent::Overrun);
        read.into_iter()
            .map(|(from, mut event)| {
                if let EthtoolEvent::Coalesce { nsid, .. } = &mut event {
                    *nsid = from;
                }
                event
            })
            .collect()
    }
}

impl AsFd for EthtoolMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// ethtool's generic netlink family, the same in all namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Family {
    id: u16,
    /// The multicast group for notifications.
    monitor: u32,
}

/// `None` if the kernel lacks the family or its group.
fn find(transport: &mut Transport) -> Result<Option<Family>, Error> {
    let mut found = None;
    let answer = transport.ask("find ethtool's netlink family", get_family(), |message| {
        if message.kind == GENL_ID_CTRL {
            found = found.or_else(|| decode_family(message.payload));
        }
    });
    match answer {
        Ok(()) => Ok(found),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// CTRL_CMD_GETFAMILY by name.
fn get_family() -> Raw {
    let mut payload = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
    // Length and type, 16 bits each, then the name with NUL: 4 + 8 bytes need no padding.
    let name = format!("{FAMILY}\0");
    payload.extend_from_slice(&((4 + name.len()) as u16).to_ne_bytes());
    payload.extend_from_slice(&CTRL_ATTR_FAMILY_NAME.to_ne_bytes());
    payload.extend_from_slice(name.as_bytes());
    Raw {
        kind: GENL_ID_CTRL,
        payload,
    }
}

/// Decodes the payload of CTRL_CMD_NEWFAMILY.
pub(crate) fn decode_family(payload: &[u8]) -> Option<Family> {
    if payload.first() != Some(&CTRL_CMD_NEWFAMILY) {
        return None;
    }
    let (mut id, mut monitor) = (None, None);
    for (kind, value) in attributes(payload.get(HEADER_LEN..)?) {
        match kind {
            CTRL_ATTR_FAMILY_ID => id = u16_of(value),
            CTRL_ATTR_MCAST_GROUPS => {
                monitor = attributes(value).find_map(|(_, group)| monitor_group(group));
            }
            _ => {}
        }
    }
    Some(Family {
        id: id?,
        monitor: monitor?,
    })
}

/// The id of a multicast group, if it is the group for notifications.
fn monitor_group(nested: &[u8]) -> Option<u32> {
    let (mut name, mut number) = (None, None);
    for (kind, value) in attributes(nested) {
        match kind {
            CTRL_ATTR_MCAST_GRP_NAME => name = Some(text_of(value)),
            CTRL_ATTR_MCAST_GRP_ID => number = u32_of(value),
            _ => {}
        }
    }
    number.filter(|_| name.as_deref() == Some(MONITOR_GROUP))
}

fn event(message: &Message<'_>, family: u16) -> Option<EthtoolEvent> {
    if message.kind != family {
        return None;
    }
    decode_event(message.payload)
}

/// Decodes the payload of a message of ethtool's family. `None` if it is not a notification of moderation
/// or names no interface.
pub(crate) fn decode_event(payload: &[u8]) -> Option<EthtoolEvent> {
    if payload.first() != Some(&ETHTOOL_MSG_COALESCE_NTF) {
        return None;
    }
    let (mut index, mut name) = (None, String::new());
    let (mut rx_usecs, mut rx_frames) = (None, None);
    for (kind, value) in attributes(payload.get(HEADER_LEN..)?) {
        match kind {
            ETHTOOL_A_COALESCE_HEADER => {
                for (kind, value) in attributes(value) {
                    match kind {
                        ETHTOOL_A_HEADER_DEV_INDEX => index = u32_of(value),
                        ETHTOOL_A_HEADER_DEV_NAME => name = text_of(value),
                        _ => {}
                    }
                }
            }
            ETHTOOL_A_COALESCE_RX_USECS => rx_usecs = u32_of(value),
            ETHTOOL_A_COALESCE_RX_MAX_FRAMES => rx_frames = u32_of(value),
            _ => {}
        }
    }
    Some(EthtoolEvent::Coalesce {
        nsid: None,
        ifindex: index?,
        name,
        rx_frames,
        rx_usecs,
    })
}
