//! Asynchronous events of a device (ibv_get_async_event(3); IBA vol. 1, 11.6.3).

use crate::verbs::sys::*;

/// Identifies a queue pair, a completion queue or a shared receive queue of a context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ElementId(pub(super) usize);

/// Asynchronous events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// The device needs a reset; none of its objects works.
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
    /// The subnet manager changed.
    SmChange(u8),
    /// The subnet manager asks for all registrations of groups and services again.
    ClientReregister(u8),
    /// A completion queue overran.
    CqError(ElementId),
    /// A queue pair is in ERR for a reason that no completion reports.
    QpError(ElementId),
    /// A packet arrived at a queue pair in RTR.
    Established(ElementId),
    /// A queue pair in ERR takes no more receives from its shared receive queue.
    LastWqeReached(ElementId),
    /// A shared receive queue failed.
    SrqError(ElementId),
    /// A shared receive queue is below its limit.
    SrqLimit(ElementId),
    /// Any other event, by its number.
    Other(u32),
}

impl AsyncEvent {
    /// `element` is the event's pointer, and `port` is the same memory read as a port number.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_say_what_they_concern() {
        let (port, pointer) = (2, 0x5000);
        for (code, expected) in [
            (IBV_EVENT_DEVICE_FATAL, AsyncEvent::DeviceFatal),
            (IBV_EVENT_PORT_ERR, AsyncEvent::PortError(2)),
            (IBV_EVENT_GID_CHANGE, AsyncEvent::GidChange(2)),
            (IBV_EVENT_QP_FATAL, AsyncEvent::QpError(ElementId(0x5000))),
            (IBV_EVENT_SRQ_ERR, AsyncEvent::SrqError(ElementId(0x5000))),
            (IBV_EVENT_WQ_FATAL, AsyncEvent::Other(19)),
        ] {
            assert_eq!(AsyncEvent::new(code, pointer, port), expected);
        }
    }

    proptest! {
        #[test]
        fn any_event_is_one(code: u32, element: usize, port: i32) {
            let event = AsyncEvent::new(code, element, port);
            if let AsyncEvent::PortActive(number) = event {
                prop_assert_eq!(i32::from(number), port);
            }
        }
    }
}
