//! The commands about VNICs.

use clap::{Args, Subcommand};

/// VNICs: Ethernet interfaces on virtual switches
///
/// `ibtap show` and `ibtap stats` list them beside the IPoIB interfaces.
#[derive(Clone, Debug, Args)]
pub struct VnicArgs {
    /// What to do [default: list]
    #[command(subcommand)]
    pub verb: Option<VnicVerb>,
}

/// What to do with VNICs.
#[derive(Clone, Debug, Subcommand)]
pub enum VnicVerb {
    /// VNICs with their switches, LIDs and states
    #[command(alias = "show")]
    List {
        /// Only this one [default: all]
        #[arg(value_name = "IF")]
        interface: Option<String>,
    },
    /// The Ethernet addresses that a VNIC knows, and where they are
    ///
    /// Those of the Ethernet Manager's table, those learned from received frames, and those of the
    /// interface and of hosts behind it.
    Mac {
        /// The VNIC
        #[arg(value_name = "IF")]
        interface: String,
    },
    /// The other members of a VNIC's switch, and where they are on the fabric
    Members {
        /// The VNIC
        #[arg(value_name = "IF")]
        interface: String,
    },
}
