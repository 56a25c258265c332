//! Who may keep a processor busy, and who must be alone.
//!
//! Most tests mostly wait, so that many of them run at once. Those that generate load, and would
//! disturb each other's rates and deadlines, take turns: as many at a time as there are processors.
//! Those whose result hangs on nobody else's load have the machine for themselves.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

/// What runs now.
struct Running {
    /// Turns.
    busy: usize,
    /// Labs of tests that are not alone.
    labs: usize,
    /// Tests that are alone, or wait to be.
    alone: usize,
    /// One of them runs.
    is_alone: bool,
}

static RUNNING: Mutex<Running> = Mutex::new(Running {
    busy: 0,
    labs: 0,
    alone: 0,
    is_alone: false,
});
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// Whether this thread has a turn: then it need not wait for another one.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread's test is alone.
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
    /// Labs of this thread's test.
    static LABS: Cell<usize> = const { Cell::new(0) };
}

fn lock() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_while(
    running: MutexGuard<'static, Running>,
    so: impl Fn(&Running) -> bool,
) -> MutexGuard<'static, Running> {
    CHANGED
        .wait_while(running, |running| so(running))
        .unwrap_or_else(PoisonError::into_inner)
}

/// A turn, which ends with this value. It stays on the thread that began it.
pub struct Load {
    taken: bool,
}

impl Load {
    /// Waits for a processor.
    pub fn begin() -> Load {
        if IS_ALONE.get() || HAS_TURN.replace(true) {
            return Load { taken: false };
        }
        let mut running = wait_while(lock(), |r| r.busy >= most());
        running.busy += 1;
        Load { taken: true }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.taken {
            HAS_TURN.set(false);
            lock().busy -= 1;
            CHANGED.notify_all();
        }
    }
}

fn most() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// The whole machine, as far as other tests with labs are concerned. To be taken before the test has a
/// lab of its own: two that waited for each other's would wait for ever.
pub struct Alone(());

impl Alone {
    /// Waits until the labs of all other tests are gone; meanwhile no new ones are made.
    pub fn begin() -> Alone {
        assert_eq!(LABS.get(), 0, "a lab is made after this");
        let mut running = lock();
        running.alone += 1;
        running = wait_while(running, |r| r.is_alone || r.labs > 0);
        running.is_alone = true;
        IS_ALONE.set(true);
        Alone(())
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        IS_ALONE.set(false);
        let mut running = lock();
        running.is_alone = false;
        running.alone -= 1;
        CHANGED.notify_all();
    }
}

/// A lab is there. It may end on another thread than it was made on.
pub struct Presence {
    counted: bool,
}

impl Presence {
    /// Waits while another test is alone, or is about to be. A test that has a lab already may have
    /// another one.
    pub fn begin() -> Presence {
        let own = LABS.get();
        LABS.set(own + 1);
        if IS_ALONE.get() {
            return Presence { counted: false };
        }
        let mut running = wait_while(lock(), |r| own == 0 && r.alone > 0);
        running.labs += 1;
        Presence { counted: true }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        LABS.set(LABS.get().saturating_sub(1));
        if self.counted {
            lock().labs -= 1;
            CHANGED.notify_all();
        }
    }
}
