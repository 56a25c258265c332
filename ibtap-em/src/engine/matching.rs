//! Assigns virtual ports to switches by the configuration.

use log::Level;
use proto::Time;

use super::Engine;
use super::agent::{AgentKey, Vport};

impl Engine {
    /// Assigns the virtual ports of an agent to switches.
    pub(super) fn match_ports(&mut self, now: Time, key: AgentKey) {
        let Some(agent) = self.agents.get_mut(&key) else {
            return;
        };
        let patterns = || {
            self.config
                .switches
                .iter()
                .flat_map(|switch| &switch.members)
        };
        // A port without announcement is created if the configuration names its index.
        let made: Vec<u8> = patterns()
            .filter(|p| p.matches_node(&agent.description, key.guid, key.port))
            .filter_map(|pattern| pattern.exact_index())
            .collect();
        agent
            .ports
            .retain(|index, vport| vport.interface.is_some() || made.contains(index));
        for index in made {
            agent.ports.entry(index).or_insert_with(Vport::default);
        }
        let mut left = Vec::new();
        let mut twice = Vec::new();
        for (index, vport) in &mut agent.ports {
            let port = key.vport(*index);
            let mut matching = self.config.switches.iter().filter(|switch| {
                let mut members = switch.members.iter();
                members.any(|pattern| pattern.matches(&agent.description, port))
            });
            let switch = matching.next();
            if let (Some(first), Some(second)) = (switch, matching.next()) {
                twice.push((port, first.name.clone(), second.name.clone()));
            }
            let id = switch.map(|switch| switch.id);
            if vport.switch != id {
                vport.assign(id);
            }
            if id.is_none() {
                left.push(port);
            }
        }
        for (port, first, second) in twice {
            let name = self.name(port);
            self.log_once(
                Level::Warn,
                format!(
                    "{name} matches the members of {first:?} and of {second:?}; {first:?}, the first in \
                     the file, gets it"
                ),
            );
        }
        for port in left {
            self.release(now, port);
        }
    }
}
