//! The kernel's RDMA over Ethernet (`rdma_rxe`) in virtual machines that `scripts/rxe-guest` boots, on an
//! Ethernet with programs of the host. The tests need root, QEMU, and Debian's kernel from a package mirror;
//! without these each prints that and passes.
//!
//! All tests share three virtual machines, and three tests run at a time. All their packets are captured:
//! every packet must dissect, and every ICRC must be right.

mod lab;

mod fabric;
mod harness;
mod ib;
mod interop;
mod ipoib;
mod recovery;
mod siblings;
mod systemd;
mod vnic;
