//! Asynchronous events of a device (ibv_get_async_event(3); IBA vol. 1, 11.6.3).

use crate::verbs::sys::*;

/// Tells a queue pair, a completion queue or a shared receive queue of a context from its others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ElementId(pub(super) usize);

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// The device needs a reset; nothing of it works any more.
    DeviceFatal,
    /// A port came up.
    PortActive(u8),
    /// A port went down.
    PortError(u8),
    /// A port's LID changed.
    LidChange(u8),
    /// A port's P_Key table changed.
    PKeyChange(u8),
    /// A port's GID table changed.
    GidChange(u8),
    /// The subnet manager is another one.
    SmChange(u8),
    /// The subnet manager asks for all groups and services anew.
    ClientReregister(u8),
    /// A completion queue overran.
    CqError(ElementId),
    /// A queue pair is in ERR, for a reason that no completion tells.
    QpError(ElementId),
    /// A packet came to a queue pair in RTR.
    Established(ElementId),
    /// A queue pair in ERR will take no more from its shared receive queue.
    LastWqeReached(ElementId),
    /// A shared receive queue failed.
    SrqError(ElementId),
    /// A shared receive queue is below its limit.
    SrqLimit(ElementId),
    /// Another one, by its number.
    Other(u32),
}

impl AsyncEvent {
    /// `element` is the event's pointer, and `port` the same memory as a port number.
    pub(super) fn new(code: ibv_event_type, element: usize, port: i32) -> AsyncEvent {
        let id = ElementId(element);
        let of_port =
            |event: fn(u8) -> AsyncEvent| u8::try_from(port).map_or(AsyncEvent::Other(code), event);
        match code {
            IBV_EVENT_DEVICE_FATAL => AsyncEvent::DeviceFatal,
            IBV_EVENT_PORT_ACTIVE => of_port(AsyncEvent::PortActive),
            IBV_EVENT_PORT_ERR => of_port(AsyncEvent::PortError),
            IBV_EVENT_LID_CHANGE => of_port(AsyncEvent::LidChange),
            IBV_EVENT_PKEY_CHANGE => of_port(AsyncEvent::PKeyChange),
            IBV_EVENT_GID_CHANGE => of_port(AsyncEvent::GidChange),
            IBV_EVENT_SM_CHANGE => of_port(AsyncEvent::SmChange),
            IBV_EVENT_CLIENT_REREGISTER => of_port(AsyncEvent::ClientReregister),
            IBV_EVENT_CQ_ERR => AsyncEvent::CqError(id),
            IBV_EVENT_QP_FATAL | IBV_EVENT_QP_REQ_ERR | IBV_EVENT_QP_ACCESS_ERR => {
                AsyncEvent::QpError(id)
            }
            IBV_EVENT_COMM_EST => AsyncEvent::Established(id),
            IBV_EVENT_QP_LAST_WQE_REACHED => AsyncEvent::LastWqeReached(id),
            IBV_EVENT_SRQ_ERR => AsyncEvent::SrqError(id),
            IBV_EVENT_SRQ_LIMIT_REACHED => AsyncEvent::SrqLimit(id),
            other => AsyncEvent::Other(other),
        }
    }
}
