//! `ibtap-fs` with the kernel's FUSE and a simulated daemon. The tests need root and `/dev/fuse`; without
//! them each prints that and passes.

mod fake;
#[path = "../../src/handover.rs"]
mod handover;
mod lab;
mod life;
mod ports;
#[path = "../../src/samples.rs"]
mod samples;
mod sysfs;
mod writers;
