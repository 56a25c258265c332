//! A library between the provider and the real one: it counts, fails and lies.

#[allow(clippy::missing_safety_doc)]
mod changed;
#[allow(clippy::missing_safety_doc)]
mod otherwise;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::verbs::sys::*;
use fabric::verbs_functions;

use crate::counting::{Counts, life_of};

/// How a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// With an errno, as in its manual page.
    Errno(c_int),
    /// With NULL or -1, and errno at 0.
    Silent,
}

/// A wrong result. One at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Completions of work requests that do not exist.
    WrId,
    /// Each completion twice.
    Twice,
    /// Completions of other queue pairs.
    Qpn,
    /// Lengths greater than any place.
    ByteLen,
    /// An undefined status.
    Status,
    /// More completions than requested.
    Count,
    /// A negative number of completions.
    Negative,
    /// A port on InfiniBand.
    InfiniBand,
    /// A port without tables.
    NoTables,
    /// A port with an undefined MTU.
    Mtu,
    /// A device with negative limits.
    Limits,
    /// A device without shared receive queues; not in [`Lie::ALL`], as such devices exist.
    NoSharedQueues,
    /// Queue pairs of the number 0xffffff.
    QpNumber,
    /// Completion queues smaller than requested.
    SmallQueue,
    /// A refused work request that is not in the list.
    BadRequest,
    /// Completion events of another queue.
    CqEvent,
    /// Each completion event twice.
    CqEventTwice,
    /// Asynchronous events of all kinds, of queue pairs that do not exist.
    AsyncEvents,
    /// Each event of a connection twice.
    CmEventTwice,
    /// Events of identifiers that do not exist.
    CmIdentifier,
    /// Events of undefined kinds.
    CmKind,
}

impl Lie {
    pub const ALL: [Lie; 20] = [
        Lie::WrId,
        Lie::Twice,
        Lie::Qpn,
        Lie::ByteLen,
        Lie::Status,
        Lie::Count,
        Lie::Negative,
        Lie::InfiniBand,
        Lie::NoTables,
        Lie::Mtu,
        Lie::Limits,
        Lie::QpNumber,
        Lie::SmallQueue,
        Lie::BadRequest,
        Lie::CqEvent,
        Lie::CqEventTwice,
        Lie::AsyncEvents,
        Lie::CmEventTwice,
        Lie::CmIdentifier,
        Lie::CmKind,
    ];
}

/// Which call fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fails {
    Never,
    /// The call with this number, counted from 0 over all calls that can fail.
    Number(usize),
    /// The call of this function with this number, counted from 0.
    Function(&'static str, usize),
    /// All calls, from now on.
    Always,
}

/// A result that a call may fail with.
trait Fallible: Sized {
    /// `None` if a call with this result cannot fail.
    fn fail(failure: Failure) -> Option<Self>;
    /// The address of a result that is an object.
    fn object(&self) -> usize {
        0
    }
    /// Whether the call succeeded.
    fn good(&self) -> bool {
        true
    }
}

impl Fallible for () {
    fn fail(_: Failure) -> Option<()> {
        None
    }
}

impl Fallible for u16 {
    fn fail(_: Failure) -> Option<u16> {
        None
    }
}

impl Fallible for c_int {
    fn fail(failure: Failure) -> Option<c_int> {
        Some(match failure {
            // Alternates between both ways, since the provider must handle both.
            Failure::Errno(errno) if next_is_odd() => errno,
            Failure::Errno(errno) => Failing::failing(errno),
            Failure::Silent => Failing::failing(0),
        })
    }
    fn good(&self) -> bool {
        *self == 0
    }
}

impl<T> Fallible for *mut T {
    fn fail(failure: Failure) -> Option<*mut T> {
        Some(match failure {
            Failure::Errno(errno) => Failing::failing(errno),
            Failure::Silent => Failing::failing(0),
        })
    }
    fn object(&self) -> usize {
        *self as usize
    }
    fn good(&self) -> bool {
        !self.is_null()
    }
}

impl Fallible for *const c_char {
    fn fail(_: Failure) -> Option<*const c_char> {
        Some(ptr::null())
    }
}

fn next_is_odd() -> bool {
    thread_local!(static TURN: Cell<bool> = const { Cell::new(false) });
    TURN.with(|turn| turn.replace(!turn.get()))
}

/// The state of the shim.
#[derive(Default)]
#[allow(clippy::vec_box, reason = "their addresses are given away")]
struct State {
    counts: Counts,
    calls: Vec<&'static str>,
    /// Completions to return a second time.
    again: HashMap<usize, Vec<ibv_wc>>,
    /// Invented completion events, unknown to the real library, by queue.
    invented: HashMap<usize, c_uint>,
    /// The number of the next invented asynchronous event.
    next_event: u32,
    /// Connection events to return a second time. The library's caller has their addresses.
    cm_again: Vec<Box<Retold>>,
    cm_told: Vec<Box<Retold>>,
    /// Number of wrong results returned.
    lies: u32,
}

impl State {
    /// How often a function was called.
    fn times(&self, name: &str) -> usize {
        self.calls.iter().filter(|call| **call == name).count()
    }
}

/// A copy of a connection's event with its private data.
struct Retold {
    event: rdma_cm_event,
    data: Vec<u8>,
}

// SAFETY: the pointers in it are handed out, not followed.
unsafe impl Send for Retold {}

/// The shim.
pub struct Shim {
    real: Arc<dyn Library>,
    fails: Fails,
    failure: Failure,
    lie: Option<Lie>,
    /// With [`Fails::Always`]: whether calls fail now.
    broken: AtomicBool,
    state: Mutex<State>,
}

impl Shim {
    pub fn honest(real: &Arc<dyn Library>) -> Shim {
        Shim {
            real: real.clone(),
            fails: Fails::Never,
            failure: Failure::Silent,
            lie: None,
            broken: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub fn failing(real: &Arc<dyn Library>, fails: Fails, failure: Failure) -> Shim {
        Shim {
            fails,
            failure,
            ..Shim::honest(real)
        }
    }

    pub fn lying(real: &Arc<dyn Library>, lie: Lie) -> Shim {
        Shim {
            lie: Some(lie),
            ..Shim::honest(real)
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With [`Fails::Always`]: starts or stops failing.
    pub fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Ordering::Relaxed);
    }

    /// How often each function was called, without functions that cannot fail.
    pub fn functions(&self) -> BTreeMap<&'static str, usize> {
        let mut times = BTreeMap::new();
        for call in self.state().calls.iter() {
            *times.entry(*call).or_default() += 1;
        }
        times
    }

    /// The calls made, without functions that cannot fail.
    pub fn calls(&self) -> Vec<&'static str> {
        self.state().calls.clone()
    }

    pub fn made(&self, kind: &str) -> u32 {
        self.state().counts.of(kind)
    }

    /// Objects that were leaked, destroyed twice, or destroyed too early.
    pub fn leaks(&self) -> Vec<String> {
        let state = self.state();
        let left = state.counts.left();
        let left = left.iter().map(|kind| format!("{kind} left behind"));
        left.chain(state.counts.wrong.iter().cloned()).collect()
    }

    fn tells(&self, lie: Lie) -> bool {
        self.lie == Some(lie)
    }

    /// Number of wrong results returned.
    pub fn lies(&self) -> u32 {
        self.state().lies
    }

    fn lied(&self) {
        self.state().lies += 1;
    }

    /// Makes a call, or fails it. `object` is the address of the object that the call destroys, if any.
    fn call<R: Fallible>(&self, name: &'static str, object: usize, real: impl FnOnce() -> R) -> R {
        let life = life_of(name);
        let mut fails = false;
        if let Some(failed) = R::fail(self.failure) {
            let mut state = self.state();
            fails = match self.fails {
                Fails::Never => false,
                Fails::Number(number) => state.calls.len() == number,
                Fails::Function(function, number) => {
                    function == name && state.times(name) == number
                }
                Fails::Always => self.broken.load(Ordering::Relaxed),
            };
            state.calls.push(name);
            let ends = life.is_some_and(|(_, makes)| !makes) || name == "rdma_ack_cm_event";
            if fails && !ends {
                return failed;
            }
        }
        if let Some((kind, false)) = life {
            self.state().counts.ended(kind, object);
        }
        let result = real();
        match life {
            Some((kind, true)) if result.good() => {
                self.state().counts.made(kind, result.object());
            }
            // A destructor that fails destroys the object nevertheless: otherwise this machine would
            // run out of them, and the provider could not do anything about it.
            Some((kind, false)) if !result.good() => {
                self.state().counts.wrong.push(format!("{kind}: not ended"));
            }
            _ => {}
        }
        if fails {
            return R::fail(self.failure).unwrap_or(result);
        }
        result
    }
}

/// The address of the first argument, if it is a pointer.
trait Address {
    fn address(&self) -> usize;
}
impl<T> Address for *mut T {
    fn address(&self) -> usize {
        *self as usize
    }
}

macro_rules! first {
    () => {
        0
    };
    ($first:ident $($rest:ident)*) => {
        $first.address()
    };
}

macro_rules! shim {
    ($($group:ident { $(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;
    )* })*) => {
        impl Library for Shim {
            $($(unsafe fn $name(&self, $($arg: $type),*) -> $result {
                // SAFETY: the caller follows the manual page, and the real library gets its own
                // pointers.
                let result = self.call(stringify!($name), first!($($arg)*), || unsafe {
                    before::$name(self, $($arg),*)
                });
                // SAFETY: the same arguments again.
                unsafe { after::$name(self, result, $($arg),*) }
            })*)*
        }

        /// Replacements of real calls.
        #[allow(clippy::missing_safety_doc)]
        mod before {
            use super::*;
            $($(shim!(@before $name ($($arg: $type),*) -> $result);)*)*
        }
        /// Changes of results.
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
        mod after {
            use super::*;
            $($(shim!(@after $name ($($arg: $type),*) -> $result);)*)*
        }
    };
    // Functions in `otherwise` replace these calls.
    (@before ibv_ack_cq_events $($rest:tt)*) => { pub use super::otherwise::ibv_ack_cq_events; };
    (@before ibv_ack_async_event $($rest:tt)*) => { pub use super::otherwise::ibv_ack_async_event; };
    (@before ibv_get_async_event $($rest:tt)*) => { pub use super::otherwise::ibv_get_async_event; };
    (@before rdma_get_cm_event $($rest:tt)*) => { pub use super::otherwise::rdma_get_cm_event; };
    (@before rdma_ack_cm_event $($rest:tt)*) => { pub use super::otherwise::rdma_ack_cm_event; };
    (@before ibv_get_cq_event $($rest:tt)*) => { pub use super::otherwise::ibv_get_cq_event; };
    (@before ibv_destroy_qp $($rest:tt)*) => { pub use super::otherwise::ibv_destroy_qp; };
    (@before $name:ident ($($arg:ident: $type:ty),*) -> $result:ty) => {
        pub unsafe fn $name(shim: &Shim, $($arg: $type),*) -> $result {
            // SAFETY: the caller follows the manual page.
            unsafe { shim.real.$name($($arg),*) }
        }
    };
    (@after ibv_poll_cq $($rest:tt)*) => { pub use super::changed::ibv_poll_cq; };
    (@after ibv_query_port $($rest:tt)*) => { pub use super::changed::ibv_query_port; };
    (@after ibv_query_device_ex $($rest:tt)*) => { pub use super::changed::ibv_query_device_ex; };
    (@after ibv_create_qp $($rest:tt)*) => { pub use super::changed::ibv_create_qp; };
    (@after ibv_create_cq $($rest:tt)*) => { pub use super::changed::ibv_create_cq; };
    (@after ibv_post_send $($rest:tt)*) => { pub use super::changed::ibv_post_send; };
    (@after rdma_create_id $($rest:tt)*) => { pub use super::changed::rdma_create_id; };
    (@after $name:ident ($($arg:ident: $type:ty),*) -> $result:ty) => {
        pub unsafe fn $name(_: &Shim, result: $result, $(_: $type),*) -> $result {
            result
        }
    };
}
verbs_functions!(shim);

/// A wrong queue pair number.
const WRONG_QPN: u32 = 0xff_ffff;
