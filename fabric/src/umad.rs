//! Management datagrams (MADs) on an InfiniBand port, through libibumad and the kernel's `ib_umad`.
//!
//! libibumad is found at run time, so that a machine without rdma-core runs the same programs.
//! [`Umad::open`] opens one port. [`Umad::register`] makes an agent: it names the class whose answers,
//! and the methods whose requests, the port receives. [`Umad::send`] sends at once, on the caller's
//! thread: the kernel queues a MAD and does not wait. One thread for each port receives and puts MADs
//! into a bounded queue; an eventfd ([`Umad::event_fd`]) is readable while there is something for
//! [`Umad::receive`].
//!
//! * **Transaction ids.** The kernel replaces the upper 32 bits of the transaction id of each sent
//!   request by a number of the agent. Received answers, and requests that the kernel returns without
//!   an answer, have zero there.
//! * **Answers.** The kernel delivers an answer only while the request is outstanding: during
//!   `timeout` of [`Umad::send`], `retries` times again. Without an answer it returns the request's
//!   header with [`Received::status`] 110 (ETIMEDOUT). A second request with a transaction id that is
//!   outstanding fails with EINVAL. Answers have timeout 0, and so have all messages of class 7, whose
//!   answers are no response MADs.
//! * **RMPP.** The kernel reassembles and acknowledges tables for agents with `rmpp_version` 1. A table
//!   then arrives as one MAD: the first segment with the data of all segments behind.
//! * **Simulator.** Under ibsim's preload (`libumad2sim`) the descriptor exists only inside the preload:
//!   poll(2) and epoll(7) do not know it, so the thread waits inside `umad_recv`. sysfs there shows
//!   the port as it was when the program started, so [`Umad::attributes`] asks the simulated port
//!   with directed-route MADs. Nobody reassembles RMPP. The preload crashes when a MAD arrives for
//!   an agent that has left, or for a class without an agent. So agents and descriptors stay until the
//!   program ends. ibsim delivers requests, such as Reports, only to a program that says it is a subnet
//!   manager: the first agent with methods does that, and another agent answers the questions of real
//!   managers (ibsim 0.10, `umad2sim/umad2sim.c`, `ibsim/ibsim.c`).
//!
//! Sources: rdma-core `libibumad/umad.c` and `infiniband/umad.h`, kernel
//! `drivers/infiniband/core/user_mad.c` and `Documentation/infiniband/user_mad.rst`.

mod arrivals;
mod attributes;
mod error;
#[cfg(test)]
pub(crate) mod fake;
mod holders;
mod message;
mod port;
mod simulated;
#[allow(unsafe_code)]
mod sys;
#[cfg(test)]
mod tests;

pub use attributes::{LinkState, PortAttributes};
pub use error::UmadError;
pub use message::{Grh, Received, To};
pub use port::{Agent, AgentId, Umad, attributes, devices};
