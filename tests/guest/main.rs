//! The kernel's RDMA over Ethernet (`rdma_rxe`) in virtual machines that `scripts/rxe-guest` boots, on an
//! Ethernet with programs of the host. The tests need root, QEMU, and Debian's kernel from a package mirror;
//! without these each prints that and passes.
//!
//! Tests share ten virtual machines: one for each of three Ethernets, two for each of three InfiniBand subnets, and one
//! with systemd. Up to seven tests run at a time. The RoCE packets of one machine of each Ethernet and each subnet are captured:
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
