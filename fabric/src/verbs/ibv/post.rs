//! Lists of work requests, posted in one call each, with reused memory.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::ptr;

use proto::{QKey, Qpn};

use super::address_handle::AddressHandle;
use super::call::{check, invalid};
use super::memory::Place;
use super::pool::Pool;
use crate::verbs::sys::*;

/// Destination of UD messages.
#[derive(Clone, Copy, Debug)]
pub struct UdTarget<'a> {
    /// Address handle.
    pub ah: &'a AddressHandle,
    /// Queue pair number; [`Qpn::MULTICAST`] for a group.
    pub qpn: Qpn,
    /// The remote Q_Key. With bit 31 set, the queue pair's own Q_Key is sent instead.
    pub qkey: QKey,
}

/// Messages of one size side by side in a place; the last one may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Sends<'a> {
    /// Destination, on UD.
    pub to: Option<UdTarget<'a>>,
    /// Distance between the starts of two messages in bytes.
    pub stride: usize,
    /// Number of messages, not 0.
    pub count: usize,
    /// Bytes of each message except the last.
    pub payload: usize,
    /// Bytes of the last message.
    pub last: usize,
}

/// Why messages were not posted.
#[derive(Debug)]
pub struct Refused {
    /// The place, if none of its messages was posted. Otherwise it stays posted, and its last
    /// completion may never come: the queue pair has to be reset.
    pub place: Option<Place>,
    /// The library's error: ENOMEM when the queue is full.
    pub source: io::Error,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl std::error::Error for Refused {}

/// How much of a list was posted.
enum Outcome {
    All,
    /// The first part, with this length.
    Some(usize, io::Error),
    /// Unknown: the library does not report it, or reports something impossible.
    Unclear(io::Error),
}

fn outcome<T>(result: c_int, list: &[T], bad: *mut T) -> Outcome {
    match check(result) {
        Ok(()) => Outcome::All,
        // Compared as addresses only; the library's pointer may be invalid.
        Err(source) => match list.iter().position(|wr| ptr::eq(wr, bad)) {
            Some(count) => Outcome::Some(count, source),
            None if bad.is_null() => Outcome::Some(0, source),
            None => Outcome::Unclear(invalid(format!(
                "the verbs library refused a work request that is not in the list ({source})"
            ))),
        },
    }
}

/// Memory for lists of sends.
pub struct SendList {
    requests: Vec<ibv_send_wr>,
    elements: Vec<ibv_sge>,
}

// SAFETY: the pointers in it are valid only during a call, which sets them again.
unsafe impl Send for SendList {}

impl fmt::Debug for SendList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendList({})", self.requests.capacity())
    }
}

impl SendList {
    /// For up to `count` messages at once; longer lists allocate memory.
    pub fn new(count: usize) -> SendList {
        SendList {
            requests: Vec::with_capacity(count),
            elements: Vec::with_capacity(count),
        }
    }

    /// Posts messages to a queue; only the last one is signalled. The call copies messages of at most
    /// `inline_max` bytes.
    ///
    /// # Safety
    /// `qp` is alive, and its protection domain is the one of the pool and of the address handle.
    #[allow(clippy::result_large_err, reason = "the place comes back")]
    pub(super) unsafe fn post(
        &mut self,
        library: &dyn Library,
        (qp, queue): (*mut ibv_qp, u64),
        inline_max: usize,
        pool: &mut Pool,
        mut place: Place,
        sends: &Sends<'_>,
    ) -> Result<(), Refused> {
        let refused = |place, source: io::Error| {
            Err(Refused {
                place: Some(place),
                source,
            })
        };
        if !pool.has(&place) || !self.lay_out(&mut place, inline_max, sends) {
            return refused(place, io::ErrorKind::InvalidInput.into());
        }
        let mut bad = ptr::null_mut();
        // SAFETY: the list is well formed (`lay_out`) and outlives the call. Its memory is in the
        // place, which is stored as posted below and not accessed until it completes.
        let result = unsafe { library.ibv_post_send(qp, self.requests.as_mut_ptr(), &mut bad) };
        match outcome(result, &self.requests, bad) {
            Outcome::All => {
                pool.note(place, queue);
                Ok(())
            }
            Outcome::Some(0, source) => refused(place, source),
            Outcome::Some(_, source) | Outcome::Unclear(source) => {
                pool.note(place, queue);
                Err(Refused {
                    place: None,
                    source,
                })
            }
        }
    }

    /// Builds the list; false if the messages do not fit into the place.
    fn lay_out(&mut self, place: &mut Place, inline_max: usize, sends: &Sends<'_>) -> bool {
        self.requests.clear();
        self.elements.clear();
        let name = place.rename();
        let mut flags = 0;
        if sends.payload.max(sends.last) <= inline_max {
            flags |= IBV_SEND_INLINE;
        }
        for i in 0..sends.count {
            let last = i + 1 == sends.count;
            let len = if last { sends.last } else { sends.payload };
            let Some(part) = i
                .checked_mul(sends.stride)
                .and_then(|at| Some(at..at.checked_add(len)?))
            else {
                return false;
            };
            let Some(element) = place.element(part) else {
                return false;
            };
            self.elements.push(element);
            // SAFETY: all zero is a valid value of the structure: integers, null pointers and unions of
            // them.
            let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
            request.num_sge = 1;
            request.opcode = IBV_WR_SEND;
            request.send_flags = flags;
            if last {
                request.wr_id = name;
                request.send_flags |= IBV_SEND_SIGNALED;
            } else {
                request.wr_id = Place::with_more(name);
            }
            if let Some(to) = &sends.to {
                request.wr.ud.ah = to.ah.as_ptr();
                request.wr.ud.remote_qpn = to.qpn.get();
                request.wr.ud.remote_qkey = to.qkey.get();
            }
            self.requests.push(request);
        }
        link(
            &mut self.requests,
            &mut self.elements,
            |request, next, element| {
                request.next = next;
                request.sg_list = element;
            },
        );
        !self.requests.is_empty()
    }
}

/// Sets the pointers of a list, when neither the list nor its elements move any more.
fn link<T>(
    requests: &mut [T],
    elements: &mut [ibv_sge],
    set: impl Fn(&mut T, *mut T, *mut ibv_sge),
) {
    let first = requests.as_mut_ptr();
    let count = requests.len();
    let element = elements.as_mut_ptr();
    for (i, request) in requests.iter_mut().enumerate() {
        let next = if i + 1 < count {
            first.wrapping_add(i + 1)
        } else {
            ptr::null_mut()
        };
        set(request, next, element.wrapping_add(i));
    }
}

/// Receive queues.
pub(super) enum ReceiveQueue {
    Own(*mut ibv_qp),
    Shared(*mut ibv_srq),
}

/// Memory for lists of receives.
pub struct ReceiveList {
    requests: Vec<ibv_recv_wr>,
    elements: Vec<ibv_sge>,
}

// SAFETY: as for `SendList`.
unsafe impl Send for ReceiveList {}

impl fmt::Debug for ReceiveList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceiveList({})", self.requests.capacity())
    }
}

impl ReceiveList {
    /// For up to `count` places at once; longer lists allocate memory.
    pub fn new(count: usize) -> ReceiveList {
        ReceiveList {
            requests: Vec::with_capacity(count),
            elements: Vec::with_capacity(count),
        }
    }

    /// Posts all places; those not posted stay in `places`.
    ///
    /// # Safety
    /// The queue is alive, and its protection domain is the one of the pool.
    pub(super) unsafe fn post(
        &mut self,
        library: &dyn Library,
        (to, queue): (ReceiveQueue, u64),
        pool: &mut Pool,
        places: &mut Vec<Place>,
    ) -> io::Result<()> {
        if places.is_empty() {
            return Ok(());
        }
        if !places.iter().all(|place| pool.has(place)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.lay_out(places)?;
        let mut bad = ptr::null_mut();
        let first = self.requests.as_mut_ptr();
        // SAFETY: as in `SendList::post`; every place that may have been posted is stored below.
        let result = unsafe {
            match to {
                ReceiveQueue::Own(qp) => library.ibv_post_recv(qp, first, &mut bad),
                ReceiveQueue::Shared(srq) => library.ibv_post_srq_recv(srq, first, &mut bad),
            }
        };
        let (posted, answer) = match outcome(result, &self.requests, bad) {
            Outcome::All => (places.len(), Ok(())),
            Outcome::Some(count, source) => (count, Err(source)),
            Outcome::Unclear(source) => (places.len(), Err(source)),
        };
        for place in places.drain(..posted) {
            pool.note(place, queue);
        }
        answer
    }

    fn lay_out(&mut self, places: &mut [Place]) -> io::Result<()> {
        self.requests.clear();
        self.elements.clear();
        for place in places {
            let whole = 0..place.len();
            let element = place.element(whole).ok_or(io::ErrorKind::InvalidInput)?;
            self.elements.push(element);
            self.requests.push(ibv_recv_wr {
                wr_id: place.rename(),
                next: ptr::null_mut(),
                sg_list: ptr::null_mut(),
                num_sge: 1,
            });
        }
        link(
            &mut self.requests,
            &mut self.elements,
            |request, next, element| {
                request.next = next;
                request.sg_list = element;
            },
        );
        Ok(())
    }
}
