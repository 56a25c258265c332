//! Client of subnet administration, sans-IO (IBA vol. 1, chapters 13 and 15).
//!
//! [`Client`] takes requests, received management datagrams and the time. It returns datagrams to send,
//! events and the next deadline. A carrier, umad or QP1 of the software fabric, takes the datagrams to
//! QP1 of the subnet manager's port.

mod client;
mod counts;
mod request;
mod response;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientConfig, Event, Full, TransactionId};
pub use counts::Counts;
pub use request::{GroupJoin, Request};
pub use response::{Failure, Response, Unusable};
