//! The device of the library: its queues take all work, and complete what a test completes.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::event::{EventfdFlags, eventfd};

use super::rdma_cm::Happened;
use super::{Fake, made};
use crate::verbs::sys::*;

/// The largest number of everything that the device limits.
const LIMIT: i32 = 1 << 16;

/// The places of its shared receive queues. Two such queues fill no more than one poll takes.
const SRQ_PLACES: i32 = 128;

/// Its answers, and its work.
pub struct Device {
    /// Number of shared receive queues.
    pub max_srq: i32,
    /// The P_Key table.
    pub pkeys: Vec<u16>,
    /// The MTU of its port.
    pub active_mtu: ibv_mtu,
    /// Called once when an event channel of rdma_cm is created.
    pub at_rdma_cm: Option<Box<dyn FnOnce() + Send>>,
    /// Events of rdma_cm.
    pub(super) cm_events: VecDeque<Happened>,
    /// The joins of groups by rdma_cm that have not ended.
    pub(super) cm_joins: Vec<Happened>,
    /// Whether the kernel's interface is missing in its broadcast group: joins of groups by rdma_cm are refused.
    pub refuses_cm_groups: bool,
    /// The link layer of its port.
    pub link_layer: c_uint,
    /// Whether new queue pairs are refused.
    pub refuses_queue_pairs: bool,
    /// Whether controlled Q_Keys are refused, as by the kernel without CAP_NET_RAW.
    pub refuses_controlled: bool,
    /// Whether queue pairs cannot be attached to groups.
    pub refuses_attachments: bool,
    /// Whether queries of ports and queue pairs fail.
    pub fails_queries: bool,
    /// Identifiers of the posted sends, in order.
    pub sends: Vec<u64>,
    /// Completions to be polled, each with the address of its queue.
    pub(super) completions: Vec<(usize, ibv_wc)>,
    /// Descriptors of events, of which there are none.
    descriptors: Vec<OwnedFd>,
    /// Number of the last queue pair.
    qp_num: u32,
}

impl Default for Device {
    fn default() -> Device {
        Device {
            max_srq: LIMIT,
            pkeys: vec![0xffff],
            active_mtu: IBV_MTU_2048,
            at_rdma_cm: None,
            cm_events: VecDeque::new(),
            cm_joins: Vec::new(),
            refuses_cm_groups: false,
            link_layer: IBV_LINK_LAYER_ETHERNET,
            refuses_queue_pairs: false,
            refuses_controlled: false,
            refuses_attachments: false,
            fails_queries: false,
            sends: Vec::new(),
            completions: Vec::new(),
            descriptors: Vec::new(),
            qp_num: 1,
        }
    }
}

impl Device {
    /// Number of groups that are joined by rdma_cm.
    pub fn cm_groups(&self) -> usize {
        self.cm_joins.len()
    }

    /// The kernel reports an error of all groups that are joined by rdma_cm.
    pub fn fail_cm_groups(&mut self, errno: c_int) {
        let error = |join: &Happened| join.failed(errno);
        self.cm_events.extend(self.cm_joins.iter().map(error));
    }

    /// The kernel refuses the joins of groups by rdma_cm that it has not answered yet.
    pub fn refuse_cm_joins(&mut self, errno: c_int) {
        self.cm_events.clear();
        self.fail_cm_groups(errno);
    }

    /// A descriptor that is never readable. It stays open as long as the library.
    pub(super) fn descriptor(&mut self) -> c_int {
        let fd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let number = fd.as_raw_fd();
        self.descriptors.push(fd);
        number
    }

    /// A queue pair in RESET, or a destroyed one, has no completions: mlx4, mlx5 and mthca remove those not yet polled,
    /// and free their places in the shared receive queue.
    fn forget(&mut self, qp_num: u32) {
        self.completions.retain(|(_, wc)| wc.qp_num != qp_num);
    }
}

pub unsafe fn ibv_get_device_list(_: &Fake, count: *mut c_int) -> *mut *mut ibv_device {
    // SAFETY: the caller's pointer.
    unsafe { *count = 1 };
    Box::into_raw(Box::new(ptr::dangling_mut()))
}

pub unsafe fn ibv_free_device_list(_: &Fake, list: *mut *mut ibv_device) {
    // SAFETY: `ibv_get_device_list` made it; it is freed once.
    drop(unsafe { Box::from_raw(list) });
}

pub unsafe fn ibv_get_device_name(_: &Fake, _: *mut ibv_device) -> *const c_char {
    c"fake".as_ptr()
}

pub unsafe fn ibv_open_device(fake: &Fake, _: *mut ibv_device) -> *mut ibv_context {
    let context: *mut ibv_context = made();
    // SAFETY: it was made just now.
    unsafe { (*context).async_fd = fake.device().descriptor() };
    context
}

pub unsafe fn ibv_query_device_ex(
    fake: &Fake,
    _: *mut ibv_context,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: the caller's structure.
    let attr = unsafe { &mut (*attr).orig_attr };
    attr.phys_port_cnt = 1;
    attr.max_qp = LIMIT;
    attr.max_qp_wr = LIMIT;
    attr.max_sge = LIMIT;
    attr.max_cqe = LIMIT;
    attr.max_srq = fake.device().max_srq;
    attr.max_srq_wr = SRQ_PLACES;
    attr.max_mcast_grp = LIMIT;
    0
}

/// An active port.
pub unsafe fn ibv_query_port(
    fake: &Fake,
    _: *mut ibv_context,
    _: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's structure.
    let attr = unsafe { &mut *attr };
    attr.state = IBV_PORT_ACTIVE;
    attr.gid_tbl_len = 1;
    let device = fake.device();
    if device.fails_queries {
        return libc::EIO;
    }
    attr.active_mtu = device.active_mtu;
    attr.pkey_tbl_len = device.pkeys.len() as u16;
    attr.link_layer = device.link_layer as u8;
    0
}

/// The GID ::1, on any interface.
pub unsafe fn _ibv_query_gid_ex(
    _: &Fake,
    _: *mut ibv_context,
    _: u32,
    _: u32,
    entry: *mut ibv_gid_entry,
    _: u32,
    _: usize,
) -> c_int {
    // SAFETY: the caller's structure.
    let entry = unsafe { &mut *entry };
    entry.gid.raw = std::net::Ipv6Addr::LOCALHOST.octets();
    entry.gid_type = IBV_GID_TYPE_ROCE_V2;
    entry.ndev_ifindex = 1;
    0
}

pub unsafe fn ibv_query_pkey(
    fake: &Fake,
    _: *mut ibv_context,
    _: u8,
    index: c_int,
    pkey: *mut __be16,
) -> c_int {
    // SAFETY: the caller's pointer.
    unsafe { *pkey = fake.device().pkeys[index as usize].to_be() };
    0
}

pub unsafe fn ibv_get_async_event(_: &Fake, _: *mut ibv_context, _: *mut ibv_async_event) -> c_int {
    Failing::failing(libc::EAGAIN)
}

pub unsafe fn ibv_create_comp_channel(fake: &Fake, _: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel: *mut ibv_comp_channel = made();
    // SAFETY: it was made just now.
    unsafe { (*channel).fd = fake.device().descriptor() };
    channel
}

pub unsafe fn ibv_get_cq_event(
    _: &Fake,
    _: *mut ibv_comp_channel,
    _: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    Failing::failing(libc::EAGAIN)
}

pub unsafe fn ibv_create_cq(
    _: &Fake,
    _: *mut ibv_context,
    cqe: c_int,
    _: *mut c_void,
    _: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    let cq: *mut ibv_cq = made();
    // SAFETY: it was made just now.
    unsafe { (*cq).cqe = cqe };
    cq
}

pub unsafe fn ibv_poll_cq(fake: &Fake, cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    let mut device = fake.device();
    let of_queue = |(queue, _): &mut (usize, ibv_wc)| *queue == cq.addr();
    let found = device.completions.extract_if(.., of_queue);
    let found: Vec<ibv_wc> = found.take(count as usize).map(|(_, wc)| wc).collect();
    // SAFETY: the caller's array has `count` entries.
    unsafe { ptr::copy_nonoverlapping(found.as_ptr(), wc, found.len()) };
    found.len() as c_int
}

pub unsafe fn ibv_create_qp(fake: &Fake, _: *mut ibv_pd, _: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let mut device = fake.device();
    if device.refuses_queue_pairs {
        return Failing::failing(libc::ENOMEM);
    }
    device.qp_num += 1;
    let qp: *mut ibv_qp = made();
    // SAFETY: it was made just now.
    unsafe { (*qp).qp_num = device.qp_num };
    qp
}

pub unsafe fn ibv_modify_qp(
    fake: &Fake,
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    // SAFETY: the caller's queue pair and structure.
    let (qp_num, attr) = unsafe { ((*qp).qp_num, &*attr) };
    let mut device = fake.device();
    let has = |bit: ibv_qp_attr_mask| mask.cast_unsigned() & bit != 0;
    if device.refuses_controlled && has(IBV_QP_QKEY) && attr.qkey >> 31 == 1 {
        return libc::EPERM;
    }
    if has(IBV_QP_STATE) && attr.qp_state == IBV_QPS_RESET {
        device.forget(qp_num);
    }
    0
}

pub unsafe fn ibv_attach_mcast(fake: &Fake, _: *mut ibv_qp, _: *const ibv_gid, _: u16) -> c_int {
    if fake.device().refuses_attachments {
        libc::ENOMEM
    } else {
        0
    }
}

pub unsafe fn ibv_destroy_qp(fake: &Fake, qp: *mut ibv_qp) -> c_int {
    // SAFETY: `ibv_create_qp` made it; it is freed once.
    let qp = unsafe { Box::from_raw(qp) };
    fake.device().forget(qp.qp_num);
    0
}

pub unsafe fn ibv_query_qp(
    fake: &Fake,
    _: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    _: *mut ibv_qp_init_attr,
) -> c_int {
    if fake.device().fails_queries {
        return libc::EIO;
    }
    // SAFETY: the caller's structure.
    unsafe { (*attr).qp_state = IBV_QPS_RTS };
    0
}

pub unsafe fn ibv_post_send(
    fake: &Fake,
    _: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    _: *mut *mut ibv_send_wr,
) -> c_int {
    let mut next = wr;
    while !next.is_null() {
        // SAFETY: a list as ibv_post_send(3) requires.
        let wr = unsafe { &*next };
        fake.device().sends.push(wr.wr_id);
        next = wr.next;
    }
    0
}
