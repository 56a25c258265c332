//! The Linux side of ibtap: TAP queues with virtio-net headers, and the offloads of a network card:
//! segmentation, coalescing, checksums.
//!
//! The [`vnet`] header carries the kernel's offload requests. [`segment`] cuts large frames from the TAP,
//! [`coalesce`] merges packets to it, both with [`checksum`]. [`gather`] passes a large packet to the TAP
//! without a copy. [`mss`] lowers the segment size of TCP. These modules use no file descriptors, threads or clocks.

#![deny(unsafe_code)]

pub mod checksum;
pub mod coalesce;
pub mod ethtool;
pub mod gather;
pub mod inherited;
mod ip;
pub mod membership;
pub mod mroute;
pub mod mss;
pub mod netns;
pub mod segment;
mod sys;
pub mod tap;
pub mod vlan;
pub mod vnet;

#[cfg(test)]
mod testing;
