//! The memory of received payloads.
//!
//! A software fabric reads into a slice that it owns between two reads. A device writes to posted
//! memory while a batch is being read, so a slice may only cover memory that a completion has returned:
//! [`ReceivePlaces`] gives access to single payloads.

use std::fmt::Debug;
use std::ops::Range;

/// Memory that a device may be writing to in part.
pub trait ReceivePlaces: Debug + Sync {
    /// The bytes of a range; empty unless the range is within one place that completions have returned.
    fn bytes(&self, range: &Range<usize>) -> &[u8];
}

/// The memory of the payloads of a batch.
#[derive(Clone, Copy, Debug)]
pub enum ReceiveMemory<'a> {
    /// Memory that nobody writes to while the batch exists.
    Slice(&'a [u8]),
    /// Places of a device.
    Places(&'a dyn ReceivePlaces),
}

impl<'a> ReceiveMemory<'a> {
    /// The bytes of a range from the provider.
    #[inline]
    pub fn bytes(self, range: &Range<usize>) -> &'a [u8] {
        match self {
            ReceiveMemory::Slice(memory) => &memory[range.clone()],
            ReceiveMemory::Places(places) => places.bytes(range),
        }
    }
}

impl<'a> From<&'a [u8]> for ReceiveMemory<'a> {
    fn from(memory: &'a [u8]) -> ReceiveMemory<'a> {
        ReceiveMemory::Slice(memory)
    }
}

impl<'a> From<&'a Vec<u8>> for ReceiveMemory<'a> {
    fn from(memory: &'a Vec<u8>) -> ReceiveMemory<'a> {
        ReceiveMemory::Slice(memory)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for ReceiveMemory<'a> {
    fn from(memory: &'a [u8; N]) -> ReceiveMemory<'a> {
        ReceiveMemory::Slice(memory)
    }
}

impl<'a, P: ReceivePlaces> From<&'a P> for ReceiveMemory<'a> {
    fn from(places: &'a P) -> ReceiveMemory<'a> {
        ReceiveMemory::Places(places)
    }
}
