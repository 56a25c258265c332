//! Changed results of the real library.

use super::*;

pub unsafe fn ibv_poll_cq(
    shim: &Shim,
    result: c_int,
    cq: *mut ibv_cq,
    count: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    let Ok(found) = usize::try_from(result) else {
        return result;
    };
    // SAFETY: the caller's array has `count` entries, of which the real library has filled in
    // `found`.
    let all = unsafe { std::slice::from_raw_parts_mut(wc, count.max(0) as usize) };
    if shim.tells(Lie::Twice) {
        let mut state = shim.state();
        let again = state.again.entry(cq as usize).or_default();
        let room = (all.len() - found).min(again.len());
        for (place, old) in all[found..].iter_mut().zip(again.drain(..room)) {
            *place = old;
        }
        again.extend_from_slice(&all[..found]);
        state.lies += room as u32;
        return (found + room) as c_int;
    }
    for (i, wc) in all[..found].iter_mut().enumerate() {
        match shim.lie {
            Some(Lie::WrId) => wc.wr_id ^= 0x1234_5678_0000_0000 << i,
            Some(Lie::Qpn) => wc.qp_num ^= 0xff_fff0,
            Some(Lie::ByteLen) => wc.byte_len = u32::MAX,
            Some(Lie::Status) => wc.status = 77,
            _ => continue,
        }
        shim.lied();
    }
    let changed = match shim.lie {
        Some(Lie::Count) if found > 0 => count + 1,
        Some(Lie::Negative) if found > 0 => -5,
        _ => return result,
    };
    shim.lied();
    changed
}

pub unsafe fn ibv_query_port(
    shim: &Shim,
    result: c_int,
    _: *mut ibv_context,
    _: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's structure.
    let attr = unsafe { &mut *attr };
    match shim.lie {
        Some(Lie::InfiniBand) => attr.link_layer = IBV_LINK_LAYER_INFINIBAND as u8,
        Some(Lie::NoTables) => {
            attr.gid_tbl_len = -1;
            attr.pkey_tbl_len = 0;
        }
        Some(Lie::Mtu) => attr.active_mtu = 9,
        _ => return result,
    }
    shim.lied();
    result
}

pub unsafe fn ibv_query_device_ex(
    shim: &Shim,
    result: c_int,
    _: *mut ibv_context,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    if shim.tells(Lie::NoSharedQueues) {
        // SAFETY: the caller's structure.
        unsafe { (*attr).orig_attr.max_srq = 0 };
        shim.lied();
    }
    if shim.tells(Lie::Limits) {
        // SAFETY: the caller's structure.
        let attr = unsafe { &mut (*attr).orig_attr };
        attr.max_qp = -1;
        attr.max_qp_wr = -1;
        attr.max_cqe = 0;
        attr.max_srq = -7;
        attr.max_mcast_grp = -1;
        attr.phys_port_cnt = 0;
        shim.lied();
    }
    result
}

pub unsafe fn ibv_create_qp(
    shim: &Shim,
    result: *mut ibv_qp,
    _: *mut ibv_pd,
    _: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    if shim.tells(Lie::QpNumber) && !result.is_null() {
        // SAFETY: the library made it just now. rdma-core keeps it in a table by its number, so
        // the true one is put back before the end (`otherwise::ibv_destroy_qp`).
        unsafe {
            let number = (*result).qp_num;
            shim.state().invented.insert(result as usize, number);
            (*result).qp_num = WRONG_QPN;
        }
        shim.lied();
    }
    result
}

pub unsafe fn ibv_create_cq(
    shim: &Shim,
    result: *mut ibv_cq,
    _: *mut ibv_context,
    _: c_int,
    _: *mut c_void,
    _: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    if shim.tells(Lie::SmallQueue) && !result.is_null() {
        // SAFETY: the library made it just now; nobody else looks at this field of it.
        unsafe { (*result).cqe = 1 };
        shim.lied();
    }
    result
}

pub unsafe fn ibv_post_send(
    shim: &Shim,
    result: c_int,
    _: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    if shim.tells(Lie::BadRequest) {
        // SAFETY: the caller's pointer. What is put there is not to be followed.
        unsafe { *bad = wr.wrapping_byte_add(3) };
        shim.lied();
        return libc::EIO;
    }
    result
}

pub unsafe fn rdma_create_id(
    shim: &Shim,
    result: c_int,
    _: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    _: *mut c_void,
    _: rdma_port_space,
) -> c_int {
    // SAFETY: the caller's pointer, NULL before the call.
    let id = unsafe { *id };
    if result == 0 && !id.is_null() {
        shim.state().counts.made("identifier", id as usize);
    }
    result
}
