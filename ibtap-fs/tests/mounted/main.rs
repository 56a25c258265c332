//! `ibtap-fs` with the real FUSE of the kernel, before a daemon that does as it is told. They need
//! root and `/dev/fuse`; without them each says so and passes.

mod fake;
mod lab;
mod life;
#[path = "../../src/samples.rs"]
mod samples;
mod sysfs;
mod writers;
