//! Changes of the configuration while the daemon runs. Changes that the daemon can make at run time do not
//! interrupt anything else; a sentence explains each other change.

mod apply;
mod interface;
mod vnics;

use control::api::Reloaded;
use control::config::plan::Plan;
use control::config::{Config, InterfaceKey};

use crate::interfaces::{Context, Interfaces};

/// Applies a new configuration. `running`, the configuration in force, is updated with the changes that
/// were made.
pub fn reload(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    running: &mut Config,
    new: &Config,
) -> Reloaded {
    // Interfaces that the user deleted are created again.
    let served = |key: InterfaceKey| {
        let mut all = interfaces.iter();
        all.any(|(_, payload)| payload.config().key() == key)
    };
    running.ipoib.retain(|d| served(d.key()));
    running.vnics.retain(|v| served(v.key()));
    let plan = Plan::new(running, new);
    let mut reloaded = Reloaded {
        applied: Vec::new(),
        refused: plan.refused,
    };
    let mut apply = Apply { interfaces, cx };
    for step in &plan.steps {
        match apply.apply(step, running) {
            Ok(sentence) => reloaded.applied.push(sentence),
            Err(sentence) => reloaded.refused.push(sentence),
        }
    }
    reloaded
}

/// Makes the changes.
struct Apply<'d> {
    interfaces: &'d mut Interfaces,
    cx: &'d mut Context,
}
