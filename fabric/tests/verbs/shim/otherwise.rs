//! Replacements of the real library's calls.

use super::*;

pub unsafe fn ibv_destroy_qp(shim: &Shim, qp: *mut ibv_qp) -> c_int {
    if shim.tells(Lie::QpNumber)
        && let Some(number) = shim.state().invented.remove(&(qp as usize))
    {
        // SAFETY: it is alive until the call below.
        unsafe { (*qp).qp_num = number };
    }
    // SAFETY: the caller follows the manual page.
    unsafe { shim.real.ibv_destroy_qp(qp) }
}

pub unsafe fn ibv_get_cq_event(
    shim: &Shim,
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller follows the manual page.
    unsafe {
        if shim.tells(Lie::CqEventTwice) {
            let mut state = shim.state();
            let known = state.invented.keys().next().copied();
            // Once for each real one.
            if let Some(known) = known.filter(|k| state.invented[k] == 0) {
                state.invented.insert(known, 1);
                state.lies += 1;
                *cq = known as *mut ibv_cq;
                return 0;
            }
        }
        let result = shim.real.ibv_get_cq_event(channel, cq, context);
        if result == 0 && shim.tells(Lie::CqEventTwice) {
            shim.state().invented.insert(*cq as usize, 0);
        }
        if result == 0 && shim.tells(Lie::CqEvent) {
            // The real event is acknowledged here, because the caller does not know it.
            shim.real.ibv_ack_cq_events(*cq, 1);
            *cq = cq.wrapping_byte_add(5).cast();
            shim.lied();
        }
        result
    }
}

pub unsafe fn ibv_ack_cq_events(shim: &Shim, cq: *mut ibv_cq, count: c_uint) {
    let invented = match shim.lie {
        Some(Lie::CqEventTwice) => shim.state().invented.remove(&(cq as usize)).unwrap_or(0),
        _ => 0,
    };
    assert!(
        count >= invented,
        "{count} events, of which {invented} were invented"
    );
    // SAFETY: the caller follows the manual page.
    unsafe { shim.real.ibv_ack_cq_events(cq, count - invented) }
}

/// Number of invented event codes, valid and invalid.
const EVENTS: u32 = 40;

pub unsafe fn ibv_get_async_event(
    shim: &Shim,
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    if shim.tells(Lie::AsyncEvents) {
        let mut state = shim.state();
        if state.next_event < EVENTS {
            let code = state.next_event;
            state.next_event += 1;
            state.lies += 1;
            // SAFETY: the caller's structure.
            unsafe {
                (*event).event_type = code;
                (*event).element.qp = (0x1000 + code as usize * 8) as *mut ibv_qp;
            }
            return 0;
        }
    }
    // SAFETY: the caller follows the manual page.
    unsafe { shim.real.ibv_get_async_event(context, event) }
}

pub unsafe fn ibv_ack_async_event(shim: &Shim, event: *mut ibv_async_event) {
    // SAFETY: the caller's structure; the real library gets its own event.
    unsafe {
        if !shim.tells(Lie::AsyncEvents) {
            shim.real.ibv_ack_async_event(event);
        }
    }
}

pub unsafe fn rdma_get_cm_event(
    shim: &Shim,
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let mut state = shim.state();
    if let Some(mut retold) = state.cm_again.pop() {
        // SAFETY: the caller's pointer. The copy lives until it is acknowledged.
        unsafe { *event = &mut retold.event };
        state.cm_told.push(retold);
        state.lies += 1;
        return 0;
    }
    // SAFETY: the caller follows the manual page; the event belongs to the library until it is
    // acknowledged.
    unsafe {
        let result = shim.real.rdma_get_cm_event(channel, event);
        if result != 0 {
            return result;
        }
        let real = &mut **event;
        if real.event == RDMA_CM_EVENT_CONNECT_REQUEST {
            state.counts.made("identifier", real.id as usize);
        }
        match shim.lie {
            Some(Lie::CmEventTwice) => {
                let conn = real.param.conn;
                let mut copy = Box::new(Retold {
                    event: *real,
                    data: Vec::new(),
                });
                if !conn.private_data.is_null() {
                    copy.data.extend_from_slice(std::slice::from_raw_parts(
                        conn.private_data.cast(),
                        conn.private_data_len.into(),
                    ));
                    copy.event.param.conn.private_data = copy.data.as_ptr().cast();
                }
                state.cm_again.push(copy);
            }
            // Not for events that create an identifier, since it would be lost.
            Some(Lie::CmIdentifier) if real.event != RDMA_CM_EVENT_CONNECT_REQUEST => {
                let mut copy = Box::new(Retold {
                    event: *real,
                    data: Vec::new(),
                });
                copy.event.id = real.id.wrapping_byte_add(8);
                state.lies += 1;
                shim.real.rdma_ack_cm_event(real);
                *event = &mut copy.event;
                state.cm_told.push(copy);
            }
            Some(Lie::CmKind) if real.event != RDMA_CM_EVENT_CONNECT_REQUEST => {
                let mut copy = Box::new(Retold {
                    event: *real,
                    data: Vec::new(),
                });
                copy.event.event = 99;
                state.lies += 1;
                copy.event.param.conn.private_data = 0x77 as *const c_void;
                copy.event.param.conn.private_data_len = 255;
                shim.real.rdma_ack_cm_event(real);
                *event = &mut copy.event;
                state.cm_told.push(copy);
            }
            _ => {}
        }
        0
    }
}

pub unsafe fn rdma_ack_cm_event(shim: &Shim, event: *mut rdma_cm_event) -> c_int {
    let mut state = shim.state();
    let at = state.cm_told.iter().position(|r| ptr::eq(&r.event, event));
    if let Some(at) = at {
        state.cm_told.swap_remove(at);
        return 0;
    }
    // SAFETY: the caller keeps to the manual page.
    unsafe { shim.real.rdma_ack_cm_event(event) }
}
