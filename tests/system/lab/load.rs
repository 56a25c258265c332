//! Who may keep a processor busy.
//!
//! Most tests mostly wait, so that many of them run at once. Those that generate load, and would
//! disturb each other's rates and deadlines, take turns: as many at a time as there are processors.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::available_parallelism;

static BUSY: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

thread_local! {
    /// Whether this thread has a turn: then it need not wait for another one.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// A turn, which ends with this value. It stays on the thread that began it.
pub struct Load {
    processors: usize,
}

impl Load {
    /// Waits for a processor.
    pub fn begin() -> Load {
        Load::of(1)
    }

    /// Waits for all processors, for what must not be slowed down.
    pub fn alone() -> Load {
        Load::of(most())
    }

    fn of(processors: usize) -> Load {
        if HAS_TURN.replace(true) {
            return Load { processors: 0 };
        }
        let busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
        let mut busy = FREED
            .wait_while(busy, |busy| *busy + processors > most())
            .unwrap_or_else(PoisonError::into_inner);
        *busy += processors;
        Load { processors }
    }
}

fn most() -> usize {
    available_parallelism().map_or(1, usize::from)
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.processors > 0 {
            HAS_TURN.set(false);
            *BUSY.lock().unwrap_or_else(PoisonError::into_inner) -= self.processors;
            FREED.notify_all();
        }
    }
}
