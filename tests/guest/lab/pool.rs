//! Resources that tests use in turns. Each is made for the first test that needs it.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module.
pub struct Pool<T> {
    state: Mutex<State<T>>,
    given_back: Condvar,
    most: usize,
    make: fn(usize) -> Option<T>,
}

/// The resources that no test uses, and the number of those that exist.
struct State<T> {
    idle: Vec<T>,
    made: usize,
}

impl<T> Pool<T> {
    /// A pool of at most `most` resources. `make` gets their indices; `None` if they are impossible.
    pub const fn new(most: usize, make: fn(usize) -> Option<T>) -> Pool<T> {
        Pool {
            state: Mutex::new(State {
                idle: Vec::new(),
                made: 0,
            }),
            given_back: Condvar::new(),
            most,
            make,
        }
    }

    /// An idle resource, or a new one; waits while all are in use. `None` if they are impossible.
    pub fn take(&'static self) -> Option<Lent<T>> {
        let used_up = |state: &mut State<T>| state.idle.is_empty() && state.made == self.most;
        let waited = self.given_back.wait_while(self.state(), used_up);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let value = state.idle.pop();
        if value.is_some() {
            return Some(Lent { value, pool: self });
        }
        let index = state.made;
        state.made += 1;
        drop(state);
        let value = (self.make)(index);
        if value.is_none() {
            // Each test finds out by itself.
            self.state().made -= 1;
            self.given_back.notify_all();
            return None;
        }
        Some(Lent { value, pool: self })
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A resource that a test uses; given back even if the test fails.
pub struct Lent<T: 'static> {
    value: Option<T>,
    pool: &'static Pool<T>,
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("it is there until the end")
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("it is there until the end")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        self.pool.state().idle.extend(self.value.take());
        self.pool.given_back.notify_one();
    }
}
