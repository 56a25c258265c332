//! The memory that received payloads lie in.
//!
//! A software fabric reads into a slice, which is all its own between two reads. A device writes to
//! whatever was posted to it while a batch is being read, so there a slice may cover nothing but what
//! a completion has given back: [`ReceivePlaces`] hands out single payloads.

use std::fmt::Debug;
use std::ops::Range;

/// Memory of which a device may be writing to a part.
pub trait ReceivePlaces: Debug + Sync {
    /// The bytes of a range, if all of it is in one place that completions have given back; else none.
    fn bytes(&self, range: &Range<usize>) -> &[u8];
}

/// Where the payloads of a batch lie.
#[derive(Clone, Copy, Debug)]
pub enum ReceiveMemory<'a> {
    /// In memory that nobody writes to while the batch is there.
    Slice(&'a [u8]),
    /// In places of a device.
    Places(&'a dyn ReceivePlaces),
}

impl<'a> ReceiveMemory<'a> {
    /// The bytes of a range that the provider has noted.
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
