//! The kernel's RDMA over Ethernet (`rdma_rxe`), in virtual machines that `scripts/rxe-guest` boots: what the
//! host runs meets it on an Ethernet of its own. They need root, and QEMU and Debian's kernel to be had
//! from a package mirror; without these each test says so and passes.
//!
//! All tests share three virtual machines, and three run at a time. What each of them sends is captured: every packet
//! must dissect, and every ICRC be right.

mod lab;

mod fabric;
mod harness;
mod interop;
mod ipoib;
mod recovery;
mod siblings;
mod vnic;
