//! Commands for VNICs.

use clap::{Args, Subcommand};

/// Show VNICs: Ethernet interfaces on virtual switches
///
/// `ibtap show` and `ibtap stats` list VNICs and IPoIB interfaces.
#[derive(Clone, Debug, Args)]
pub struct VnicArgs {
    /// Command [default: list]
    #[command(subcommand)]
    pub verb: Option<VnicVerb>,
}

/// Commands for VNICs.
#[derive(Clone, Debug, Subcommand)]
pub enum VnicVerb {
    /// Show VNICs with their switches, LIDs and states
    #[command(alias = "show")]
    List {
        /// Only this VNIC [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
    },
    /// Show the Ethernet addresses that a VNIC knows, with their LIDs and places
    ///
    /// The addresses are from the Ethernet Manager's table, learned from received frames, or those of the
    /// interface and of hosts behind it.
    Mac {
        /// The VNIC
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// Show the other members of a VNIC's switch, with their places on the fabric
    Members {
        /// The VNIC
        #[arg(value_name = "IF")]
        interface: String,
    },
}
