//! The own address on the fabric before a change.

use crate::Time;

/// Milliseconds in which packets from a former address are late. The threads of an idle host need 5 ms to change the
/// host's GID and to empty their queues.
pub const LATE_MS: u64 = 50;

/// The own address before its last change. Own multicast from there may still loop back.
#[derive(Clone, Copy, Debug)]
pub struct Former<A>(Option<(A, Time)>);

impl<A: Copy> Former<A> {
    /// The address did not change yet.
    pub const NONE: Former<A> = Former(None);

    /// Notes the address before a change.
    pub fn set(&mut self, now: Time, address: A) {
        self.0 = Some((address, now.after(LATE_MS)));
    }

    /// The address, while packets from it are late.
    #[inline]
    #[must_use]
    pub fn get(&self, now: Time) -> Option<A> {
        let (address, until) = self.0?;
        (now < until).then_some(address)
    }
}
