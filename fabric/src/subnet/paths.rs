//! Paths to destinations, and their resolution.

use std::collections::HashMap;
use std::time::Duration;

use proto::{Gid, Instant, mgid};

use super::{Destination, GlobalRoute, Purpose, Subnet, SubnetEvent, SubnetPath, Unreachable};
use crate::mad::sa::{McMemberRecord, PathRecord};
use crate::sa::{Failure, Request, Response};

/// Maximum number of known paths. At the maximum all are forgotten.
const PATHS_MAX: usize = 1 << 16;

/// Time after which a path is resolved again. Below the age at which a worker asks again, so that each of
/// its questions gets a new answer.
const FRESH: Duration = Duration::from_secs(60);

/// A destination that was asked for.
#[derive(Clone, Copy, Debug)]
enum Entry {
    /// Its path, valid until then.
    Known(SubnetPath, Instant),
    /// The subnet administrator has not answered yet; with the path before, and whether the subnet has
    /// changed since the question.
    Asked(Option<SubnetPath>, bool),
}

impl Entry {
    /// The last known path.
    fn path(&self) -> Option<SubnetPath> {
        match self {
            Entry::Known(path, _) => Some(*path),
            Entry::Asked(before, _) => *before,
        }
    }
}

/// The known paths.
#[derive(Debug, Default)]
pub(super) struct Paths(HashMap<Destination, Entry, foldhash::fast::RandomState>);

impl Paths {
    /// Marks all paths as old.
    pub fn age_all(&mut self) {
        for entry in self.0.values_mut() {
            match entry {
                Entry::Known(_, until) => *until = Instant(0),
                Entry::Asked(_, changed) => *changed = true,
            }
        }
    }
}

impl Subnet {
    /// The path to a destination; `None` if the answer comes as [`SubnetEvent::Path`]. A group that the port
    /// is not a member of is joined as a sender.
    pub fn resolve(
        &mut self,
        now: Instant,
        destination: Destination,
    ) -> Option<Result<SubnetPath, Unreachable>> {
        if destination.gid.is_multicast() {
            return self.resolve_group(now, destination);
        }
        let before = match self.paths.0.get(&destination) {
            Some(Entry::Known(path, until)) if now < *until => return Some(Ok(*path)),
            Some(Entry::Known(path, _)) => Some(*path),
            Some(Entry::Asked(..)) => return None,
            None => None,
        };
        if self.paths.0.len() >= PATHS_MAX {
            self.paths.0.retain(|_, e| matches!(e, Entry::Asked(..)));
        }
        let Destination { gid, pkey } = destination;
        let broadcast = self.groups.get(&mgid::broadcast(pkey, mgid::LINK_LOCAL));
        let tclass = broadcast
            .and_then(|b| b.parameters())
            .map_or(0, |p| p.traffic_class);
        let request = Request::path(self.port.gid, gid, pkey, tclass);
        if self.ask(now, request, Purpose::Path(destination)).is_none() {
            return Some(Err(Unreachable::NoAnswer));
        }
        self.paths
            .0
            .insert(destination, Entry::Asked(before, false));
        None
    }

    pub(super) fn path_answered(
        &mut self,
        now: Instant,
        destination: Destination,
        result: Result<Response, Failure>,
    ) {
        let path = path_of(result);
        let asked = self.paths.0.remove(&destination);
        let known = match &path {
            Ok(path) => {
                let changed = matches!(asked, Some(Entry::Asked(_, true)));
                let until = if changed { now } else { now.after(FRESH) };
                Some(Entry::Known(*path, until))
            }
            // Workers keep the path: a Report about the port must reach them.
            Err(Unreachable::NoAnswer) => asked
                .and_then(|entry| entry.path())
                .map(|before| Entry::Known(before, now)),
            Err(Unreachable::Refused(_)) => None,
        };
        if let Some(known) = known {
            self.paths.0.insert(destination, known);
        }
        self.events
            .push_back(SubnetEvent::Path { destination, path });
    }

    /// A port joined or left the subnet: its paths are gone. An answer on its way may be from before the change.
    pub(super) fn port_changed(&mut self, gid: Gid) {
        let mut ended = Vec::new();
        self.paths.0.retain(|destination, entry| {
            if destination.gid != gid {
                return true;
            }
            match entry {
                Entry::Known(..) => ended.push(*destination),
                Entry::Asked(before, changed) => {
                    *changed = true;
                    ended.extend(before.take().map(|_| *destination));
                }
            }
            matches!(entry, Entry::Asked(..))
        });
        for destination in ended {
            let why = "the subnet administrator reported a change of the port";
            let path = Err(Unreachable::Refused(why.to_owned()));
            self.events
                .push_back(SubnetEvent::Path { destination, path });
        }
    }

    /// The resolved paths, for display.
    pub fn paths(&self) -> impl Iterator<Item = (Destination, SubnetPath)> {
        let paths = self.paths.0.iter();
        paths.filter_map(|(destination, entry)| Some((*destination, entry.path()?)))
    }

    /// The resolved path to one destination, for display.
    pub fn path(&self, destination: Destination) -> Option<SubnetPath> {
        self.paths.0.get(&destination)?.path()
    }
}

fn path_of(result: Result<Response, Failure>) -> Result<SubnetPath, Unreachable> {
    let response = result.map_err(|why| match why {
        why if why.is_undecided() => Unreachable::NoAnswer,
        why => Unreachable::Refused(why.to_string()),
    })?;
    let wrong = |what: &str| {
        let what = format!("the subnet administrator answered with {what}");
        Unreachable::Refused(what)
    };
    let record: PathRecord = response.first().ok_or_else(|| wrong("no PathRecord"))?;
    if !record.dlid.is_unicast() {
        return Err(wrong(&format!("the LID {:#06x}", record.dlid.0)));
    }
    Ok(SubnetPath {
        dlid: record.dlid,
        slid: record.slid,
        sl: record.sl,
        rate: record.rate.code,
        mtu: record.mtu.mtu().ok_or_else(|| wrong("an invalid MTU"))?,
        packet_life: record.lifetime.code,
        global: GlobalRoute {
            flow_label: record.flow_label,
            hop_limit: record.hop_limit,
            traffic_class: record.tclass,
        }
        .if_needed(),
    })
}

/// The path to a group. Packets to a group always have a GRH.
pub(super) fn group_path(record: &McMemberRecord) -> Option<SubnetPath> {
    Some(SubnetPath {
        dlid: Some(record.mlid).filter(|mlid| mlid.is_multicast())?,
        slid: proto::Lid(0),
        sl: record.sl,
        rate: record.rate.code,
        mtu: record.mtu.mtu()?,
        packet_life: record.lifetime.code,
        global: Some(GlobalRoute {
            flow_label: record.flow_label,
            hop_limit: record.hop_limit,
            traffic_class: record.tclass,
        }),
    })
}
