//! A subnet administrator with OpenSM's rules for groups and paths (opensm/osm_sa_mcmember_record.c), and
//! faults to choose.

use std::collections::BTreeMap;
use std::time::Duration;

use proto::{Gid, IbMtu, Instant, Lid, PKey, QKey};
use zerocopy::{FromBytes, IntoBytes};

use super::{broadcast, port_gid};
use crate::mad::sa::class_port_info::capability;
use crate::mad::sa::{
    self, ClassPortInfo, JoinState, McMemberRecord, PathRecord, Rate, Record, Selected, mc_member,
    status,
};
use crate::mad::{Header, MAD_LEN, SaHeader, method};
use crate::rmpp::{Sender, flag};

/// Bytes before the record.
const HEAD: usize = 56;

/// Faults of the administrator.
#[derive(Clone, Copy, Default)]
pub struct Misbehaviour {
    /// Answers nothing.
    pub silent: bool,
    /// Answers each request this often.
    pub copies: usize,
    /// Answers after this time.
    pub delay: Duration,
    /// The status of all answers, if not 0.
    pub status: u16,
    /// Number of requests that get the status busy.
    pub busy: usize,
    /// The MLID of all answers.
    pub mlid: Option<u16>,
    /// The MTU code of all answers.
    pub mtu: Option<u8>,
    /// Answers are for another group.
    pub other_group: bool,
    /// Refuses this JoinState.
    pub refuses: u8,
    /// The answer to the question for the abilities, if it is not that of OpenSM.
    pub abilities: Option<Abilities>,
}

/// Answers to the question for the abilities.
#[derive(Clone, Copy, Debug)]
pub enum Abilities {
    /// Without SendOnlyFullMember.
    None,
    /// None.
    Silence,
    /// This status.
    Status(u16),
}

/// A group.
pub struct Group {
    pub record: McMemberRecord,
    pub members: BTreeMap<Gid, u8>,
}

pub struct Administrator {
    pub ports: u16,
    pub groups: BTreeMap<Gid, Group>,
    pub next_mlid: u16,
    /// The LID of port 0; the next ones follow.
    pub first_lid: u16,
    pub faults: Misbehaviour,
    /// Requests by group, attribute and port.
    pub requests: BTreeMap<(Gid, u16, usize), usize>,
    /// Tables on their way, by port and transaction id.
    tables: BTreeMap<(usize, u64), Sender>,
}

impl Administrator {
    /// With the broadcast group of the default partition.
    pub fn new(ports: u16) -> Administrator {
        let mut sa = Administrator {
            ports,
            groups: BTreeMap::new(),
            next_mlid: 0xc000,
            first_lid: 1,
            faults: Misbehaviour {
                copies: 1,
                ..Misbehaviour::default()
            },
            requests: BTreeMap::new(),
            tables: BTreeMap::new(),
        };
        sa.create(McMemberRecord {
            mgid: broadcast(),
            qkey: QKey::IPOIB_DEFAULT,
            mtu: Selected::exactly(IbMtu::B2048 as u8),
            pkey: PKey::DEFAULT,
            rate: Selected::exactly(Rate::GBPS_10.0),
            lifetime: Selected::exactly(18),
            sl: 3,
            ..McMemberRecord::default()
        });
        sa
    }

    pub fn create(&mut self, mut record: McMemberRecord) {
        record.mlid = Lid(self.next_mlid);
        self.next_mlid += 1;
        let members = BTreeMap::new();
        self.groups.insert(record.mgid, Group { record, members });
    }

    /// Forgets all memberships and assigns other MLIDs, as after a restart.
    pub fn restart(&mut self) {
        for group in self.groups.values_mut() {
            group.members.clear();
            group.record.mlid.0 += 0x100;
        }
    }

    /// The JoinState of a port in a group.
    pub fn member(&self, mgid: Gid, port: usize) -> u8 {
        let gid = port_gid(port as u16);
        let group = self.groups.get(&mgid);
        group
            .and_then(|g| g.members.get(&gid))
            .copied()
            .unwrap_or(0)
    }

    /// The answers to a datagram, each after a time.
    pub fn answer(&mut self, port: usize, mad: &[u8; MAD_LEN]) -> Vec<(Duration, [u8; MAD_LEN])> {
        let (header, rest) = Header::read_from_prefix(mad).unwrap();
        let (head, data) = SaHeader::read_from_prefix(rest).unwrap();
        let attribute = header.attribute_id.get();
        if header.method & method::RESPONSE != 0 || self.faults.silent {
            return Vec::new();
        }
        if head.rmpp_flags & flag::ACTIVE != 0 {
            return self.acknowledged(port, header.transaction_id.get(), mad);
        }
        let mask = head.component_mask.get();
        if (header.method, attribute) == (method::GET_TABLE, sa::MC_MEMBER_RECORD)
            && mask == mc_member::PORT_GID
        {
            return self.table(port, header, head);
        }
        let result = match attribute {
            sa::MC_MEMBER_RECORD => {
                let record = McMemberRecord::parse(data).unwrap();
                *self
                    .requests
                    .entry((record.mgid, attribute, port))
                    .or_default() += 1;
                self.membership(&header, head.component_mask.get(), record)
            }
            sa::PATH_RECORD => {
                let record = PathRecord::parse(data).unwrap();
                *self
                    .requests
                    .entry((record.dgid, attribute, port))
                    .or_default() += 1;
                self.path(record)
            }
            sa::CLASS_PORT_INFO => {
                *self
                    .requests
                    .entry((Gid::UNSPECIFIED, attribute, port))
                    .or_default() += 1;
                let info = ClassPortInfo::parse(data).unwrap();
                let full = capability::SEND_ONLY_FULL_MEMBER;
                match self.faults.abilities {
                    None => Ok(bytes(&ClassPortInfo {
                        capability_mask2: full,
                        ..info
                    })),
                    Some(Abilities::None) => Ok(bytes(&info)),
                    Some(Abilities::Silence) => return Vec::new(),
                    Some(Abilities::Status(status)) => Err(status),
                }
            }
            _ => {
                *self
                    .requests
                    .entry((Gid::UNSPECIFIED, attribute, port))
                    .or_default() += 1;
                Ok(data.to_vec())
            }
        };
        let mut answer = *mad;
        answer[3] = match header.method {
            method::SET => method::GET_RESP,
            other => other | method::RESPONSE,
        };
        let mut status = result.as_ref().err().copied().unwrap_or(0);
        if self.faults.status != 0 {
            status = self.faults.status;
        }
        if self.faults.busy > 0 {
            self.faults.busy -= 1;
            status = status::BUSY;
        }
        answer[4..6].copy_from_slice(
            status
                .as_bytes()
                .iter()
                .rev()
                .copied()
                .collect::<Vec<_>>()
                .as_slice(),
        );
        if header.method == method::GET_TABLE {
            // Units of 8 bytes of a padded record.
            answer[45] = 7;
        }
        if let Ok(record) = result {
            answer[HEAD..HEAD + record.len()].copy_from_slice(&record);
        }
        vec![(self.faults.delay, answer); self.faults.copies]
    }

    /// Sends the memberships of a port in segments.
    fn table(
        &mut self,
        port: usize,
        mut header: Header,
        mut head: SaHeader,
    ) -> Vec<(Duration, [u8; MAD_LEN])> {
        let mut records = Vec::new();
        for (mgid, group) in &self.groups {
            let state = self.member(*mgid, port);
            if state != 0 {
                McMemberRecord {
                    port_gid: port_gid(port as u16),
                    join_state: JoinState(state),
                    ..group.record
                }
                .append(&mut records);
                // Units of 8 bytes of a padded record.
                records.resize(records.len().next_multiple_of(56), 0);
            }
        }
        header.method = method::GET_TABLE_RESP;
        head.attribute_offset = 7.into();
        let tid = header.transaction_id.get();
        let sender = Sender::new(Instant(0), header, head, records);
        self.tables.insert((port, tid), sender);
        self.segments(port, tid)
    }

    fn acknowledged(
        &mut self,
        port: usize,
        tid: u64,
        mad: &[u8; MAD_LEN],
    ) -> Vec<(Duration, [u8; MAD_LEN])> {
        if let Some(sender) = self.tables.get_mut(&(port, tid)) {
            sender.receive(Instant(0), mad);
        }
        self.segments(port, tid)
    }

    fn segments(&mut self, port: usize, tid: u64) -> Vec<(Duration, [u8; MAD_LEN])> {
        let sender = self.tables.get_mut(&(port, tid));
        let mut segments = Vec::new();
        if let Some(sender) = sender {
            while let Some(mad) = sender.poll_transmit() {
                segments.push((self.faults.delay, mad));
            }
        }
        segments
    }

    fn membership(
        &mut self,
        header: &Header,
        mask: u64,
        asked: McMemberRecord,
    ) -> Result<Vec<u8>, u16> {
        let is_change = header.method != method::GET_TABLE;
        if is_change && mask & mc_member::LEAVE != mc_member::LEAVE {
            return Err(status::INSUF_COMPS);
        }
        let state = asked.join_state.0;
        if header.method == method::GET_TABLE {
            let group = self.groups.get(&asked.mgid).ok_or(status::NO_RECORDS)?;
            return Ok(bytes(&group.record));
        }
        if header.method == method::DELETE {
            let group = self
                .groups
                .get_mut(&asked.mgid)
                .ok_or(status::REQ_INVALID)?;
            let held = group
                .members
                .get_mut(&asked.port_gid)
                .ok_or(status::REQ_INVALID)?;
            if *held & state == 0 || state & !*held != 0 {
                return Err(status::REQ_INVALID);
            }
            *held &= !state;
            let gone = *held == 0;
            if gone {
                group.members.remove(&asked.port_gid);
            }
            let lives = group.members.values().any(|bits| bits & 9 != 0);
            if !lives && asked.mgid != broadcast() {
                self.groups.remove(&asked.mgid);
            }
            return Ok(bytes(&asked));
        }
        if state & self.faults.refuses != 0 {
            return Err(status::REQ_INVALID);
        }
        if !self.groups.contains_key(&asked.mgid) {
            if state & 9 == 0 {
                return Err(status::REQ_INVALID);
            }
            let create = mc_member::JOIN
                | mc_member::QKEY
                | mc_member::TCLASS
                | mc_member::SL
                | mc_member::FLOW_LABEL;
            if mask & create != create {
                return Err(status::INSUF_COMPS);
            }
            let mut record = asked;
            if record.mtu.code == 0 || mask & mc_member::MTU == 0 {
                record.mtu = Selected::exactly(IbMtu::B4096 as u8);
            }
            self.create(record);
        }
        let group = self
            .groups
            .get_mut(&asked.mgid)
            .ok_or(status::NO_RESOURCES)?;
        if mask & mc_member::QKEY != 0 && group.record.qkey != asked.qkey {
            return Err(status::REQ_INVALID);
        }
        let held = group.members.entry(asked.port_gid).or_default();
        *held |= state;
        let mut record = McMemberRecord {
            port_gid: asked.port_gid,
            join_state: JoinState(*held),
            ..group.record
        };
        if let Some(mlid) = self.faults.mlid {
            record.mlid = Lid(mlid);
        }
        if let Some(code) = self.faults.mtu {
            record.mtu = Selected::exactly(code);
        }
        if self.faults.other_group {
            record.mgid = port_gid(1);
        }
        Ok(bytes(&record))
    }

    fn path(&self, asked: PathRecord) -> Result<Vec<u8>, u16> {
        let number = u16::from_be_bytes([asked.dgid.0[14], asked.dgid.0[15]]);
        if number >= self.ports {
            return Err(status::NO_RECORDS);
        }
        let record = PathRecord {
            dlid: Lid(self.faults.mlid.unwrap_or(self.first_lid + number)),
            slid: Lid(self.first_lid),
            sl: 2,
            mtu: Selected::exactly(IbMtu::B2048 as u8),
            rate: Selected::exactly(Rate::GBPS_10.0),
            lifetime: Selected::exactly(14),
            ..asked
        };
        Ok(bytes(&record))
    }
}

fn bytes<R: Record>(record: &R) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.append(&mut bytes);
    bytes
}
