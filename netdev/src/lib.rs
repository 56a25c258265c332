//! The Linux side of ibtap: TAP queues with virtio-net headers, and what a network card would do for
//! them: segmentation, coalescing, checksums.
//!
//! What the kernel asks of a card is in the [`vnet`] header. [`segment`] cuts the large frames that
//! come from the TAP, [`coalesce`] merges the packets that go to it, both over [`checksum`];
//! [`gather`] takes a large packet to the TAP as it lies. They know no file descriptor, thread or
//! clock.

#![deny(unsafe_code)]

pub mod checksum;
pub mod coalesce;
pub mod ethtool;
pub mod gather;
pub mod inherited;
mod ip;
pub mod membership;
pub mod mroute;
pub mod netns;
pub mod segment;
mod sys;
pub mod tap;
pub mod vlan;
pub mod vnet;

#[cfg(test)]
mod testing;
