//! Changes of the configuration while the daemon runs. Changes that the daemon can make at run time do not
//! interrupt anything else; a sentence explains each other change.

mod apply;
mod interface;
mod vnics;

use control::api::Reloaded;
use control::config::plan::Plan;
use control::config::{Config, InterfaceKey, IpoibConfig};

use crate::interfaces::{Context, Interfaces};
use crate::ip::Ip;

/// Applies a new configuration. `running`, the configuration in force, is updated with the changes that
/// were made. A step may wait for seconds; `between` runs after each one.
pub fn reload(
    interfaces: &mut Interfaces,
    cx: &mut Context,
    running: &mut Config,
    new: &Config,
    mut between: impl FnMut(&Context),
) -> Reloaded {
    // Interfaces that the user deleted are created again.
    let served = |key: InterfaceKey| {
        let mut all = interfaces.iter();
        all.any(|(_, payload)| payload.is_configured_as(&key))
    };
    running.ipoib.retain(|d| served(d.key()));
    running.vnics.retain(|v| served(v.key()));
    let by_hand = made_by_hand(interfaces, running, new);
    let found = by_hand.iter().map(|made| made.key());
    let found = found.map(|key| format!("{key}: existed already and is configured now"));
    let applied = found.collect();
    running.ipoib.extend(by_hand);
    let plan = Plan::new(running, new);
    let mut reloaded = Reloaded {
        applied,
        refused: plan.refused,
    };
    let mut apply = Apply { interfaces, cx };
    for step in &plan.steps {
        match apply.apply(step, running) {
            Ok(sentence) => reloaded.applied.push(sentence),
            Err(sentence) => reloaded.refused.push(sentence),
        }
        between(apply.cx);
    }
    reloaded
}

/// The settings in force of interfaces that the user created, and that the new configuration has with the same parent
/// and P_Key. The persistence of a TAP that existed before the daemon is the user's: it counts as not configured, so
/// that neither this reload nor a later one ends it.
fn made_by_hand(interfaces: &mut Interfaces, running: &Config, new: &Config) -> Vec<IpoibConfig> {
    let is_there = |config: &Config, made: &IpoibConfig| {
        let is_it = |i: &IpoibConfig| {
            i.key() == made.key() && i.parent == made.parent && i.pkey == made.pkey
        };
        config.ipoib.iter().any(is_it)
    };
    let now = |ip: &Ip| IpoibConfig {
        mode: ip.mode,
        ..ip.spec.clone()
    };
    let named = interfaces.ips_mut().filter(|(_, ip)| !ip.is_in_unnamed);
    let found = named.filter_map(|(interface, ip)| {
        let made = now(ip);
        if is_there(running, &made) || !is_there(new, &made) {
            return None;
        }
        if interface.tap.existed() {
            ip.spec.persist = false;
        }
        Some(now(ip))
    });
    found.collect()
}

/// Makes the changes.
struct Apply<'d> {
    interfaces: &'d mut Interfaces,
    cx: &'d mut Context,
}
