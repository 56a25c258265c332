//! Draining of switches and ports. A port is drained if it, or its switch, is.

use log::Level;

use proto::Time;

use super::Engine;
use super::view::no_member;
use crate::api::{DrainRequest, Drained, StillDrained};
use crate::config::{Pattern, PortKey};

impl Engine {
    pub(super) fn drain_target(
        &mut self,
        now: Time,
        request: &DrainRequest,
    ) -> Result<Drained, String> {
        let (drained, named) = (!request.undo, &request.target);
        let (targets, keys): (Vec<String>, Vec<PortKey>) = match self.find_switch(named) {
            Ok(switch) => {
                let (id, name) = (switch.id, switch.name.clone());
                if drained {
                    self.state.drained.insert(id);
                } else {
                    self.state.drained.remove(&id);
                }
                let members = self.state.members.iter();
                let of_switch = members.filter(|(_, member)| member.vesw == id);
                (vec![name], of_switch.map(|(key, _)| *key).collect())
            }
            Err(no_switch) => {
                let pattern: Pattern = match named.contains(':') || named == "*" {
                    true => named.parse()?,
                    false => return Err(no_switch),
                };
                let keys = self.drain_ports(&pattern, drained)?;
                (keys.iter().map(|key| self.name(*key)).collect(), keys)
            }
        };
        self.unsaved = true;
        // The client gets the result of an attempt to save made now: the disk may have space again.
        if let Some((_, again)) = &mut self.save_failed {
            *again = now;
        }
        let what = if drained { "drained" } else { "drain ended" };
        self.log(Level::Info, format!("{}: {what}", targets.join(", ")));
        for id in self.switches.keys().copied().collect::<Vec<_>>() {
            self.mark_dirty(now, id);
        }
        let still = keys.into_iter().filter(|_| !drained);
        Ok(Drained {
            targets,
            drained,
            in_force: self.active,
            still_drained: still.filter_map(|key| self.still_drained(key)).collect(),
        })
    }

    fn drain_ports(&mut self, pattern: &Pattern, drained: bool) -> Result<Vec<PortKey>, String> {
        let mut keys = Vec::new();
        for (key, member) in &mut self.state.members {
            if pattern.matches(&member.description, *key) {
                member.drained = drained;
                keys.push(*key);
            }
        }
        match keys.is_empty() {
            true => Err(no_member(pattern)),
            false => Ok(keys),
        }
    }

    /// The drain that holds a port, if any.
    fn still_drained(&self, key: PortKey) -> Option<StillDrained> {
        let member = self.state.members.get(&key)?;
        let port = self.name(key);
        let by = match member.drained {
            true => port.clone(),
            false => {
                let switch = self.state.drained.get(&member.vesw)?;
                self.config.switch(*switch)?.name.clone()
            }
        };
        Some(StillDrained { port, by })
    }
}
