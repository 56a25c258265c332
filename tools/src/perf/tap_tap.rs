//! The TAP-to-TAP copier: two blocking threads join two TAPs in two network namespaces.
//!
//! The virtio-net header is copied unchanged, so a large send of one host is a large receive of the other. No
//! carrier that leaves the kernel twice can be faster.

use anyhow::Result;
use clap::Args;

use crate::{carrier, tap};

/// Join two TAPs in two namespaces by copying frames
#[derive(Args)]
pub struct TapTapArgs {
    /// Network namespace of the first TAP, a name of `ip netns`
    #[arg(long, value_name = "NAME")]
    ns_a: String,
    /// Network namespace of the second TAP
    #[arg(long, value_name = "NAME")]
    ns_b: String,
    /// Name of the TAP in both namespaces
    #[arg(long, default_value = "tap0")]
    name: String,
}

/// Runs until the process ends.
///
/// # Errors
///
/// A namespace or a TAP cannot be opened, or a TAP is deleted.
pub fn run(args: &TapTapArgs) -> Result<()> {
    let a = tap::open_in(&args.ns_a, &args.name)?;
    let b = tap::open_in(&args.ns_b, &args.name)?;
    carrier::copy_both_ways(a, b)
}
