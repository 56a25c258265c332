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
    /// How often this thread holds it: a test that has its turn waits for no second one.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// A turn, which ends with this value.
pub struct Load(());

impl Load {
    /// Waits for one.
    pub fn begin() -> Load {
        let held = HELD.get();
        if held == 0 {
            let most = available_parallelism().map_or(1, usize::from);
            let busy = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
            let mut busy = FREED
                .wait_while(busy, |busy| *busy >= most)
                .unwrap_or_else(PoisonError::into_inner);
            *busy += 1;
        }
        HELD.set(held + 1);
        Load(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let held = HELD.get() - 1;
        HELD.set(held);
        if held == 0 {
            *BUSY.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
            FREED.notify_one();
        }
    }
}
