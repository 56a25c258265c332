//! Records of the subnet administrator, converted from the provider's types to those of the control socket.

use control::api::{GroupRecord, PathInfo};
use fabric::Gid;
use fabric::administration::Place;
use fabric::mad::sa::Rate;
use fabric::subnet::{SubnetInfo, SubnetPath};

/// The LID of the subnet manager; `None` while there is no subnet manager.
pub fn sm_lid(subnet: SubnetInfo<'_>) -> Option<u16> {
    manager(subnet).map(|(lid, _)| lid)
}

/// The service level of packets to the subnet manager, with its LID.
pub fn sm_sl(subnet: SubnetInfo<'_>) -> Option<u8> {
    manager(subnet).map(|(_, sl)| sl)
}

fn manager(subnet: SubnetInfo<'_>) -> Option<(u16, u8)> {
    match subnet.administrator? {
        Place::Manager { lid, sl } => Some((lid.0, sl)),
        Place::Port(_) => None,
    }
}

/// The GID of the subnet administrator's port, if the port reaches it by QP1.
pub fn sa_gid(subnet: SubnetInfo<'_>) -> Option<Gid> {
    match subnet.administrator? {
        Place::Manager { .. } => None,
        Place::Port(gid) => Some(gid),
    }
}

/// The record of a group; `None` before the first answer.
pub fn record(subnet: SubnetInfo<'_>, mgid: Gid) -> Option<GroupRecord> {
    let record = subnet.subnet.membership(mgid)?.record;
    Some(GroupRecord {
        mlid: record.mlid.0,
        join_state: record.join_state.0,
        qkey: record.qkey,
        mtu: record.mtu.mtu().map(|mtu| mtu.bytes()),
        sl: record.sl,
        rate_mbps: record.rate.rate().wire_mbps(),
    })
}

/// The path to a GID, with the attributes of a resolved path on an InfiniBand subnet. `complete`: there is an
/// address handle.
pub fn path_info(gid: Gid, complete: bool, path: Option<SubnetPath>) -> PathInfo {
    PathInfo {
        gid,
        complete,
        dlid: path.map(|path| path.dlid.0),
        sl: path.map(|path| path.sl),
        rate_mbps: path.and_then(|path| Rate(path.rate).wire_mbps()),
        mtu: path.map(|path| path.mtu.bytes()),
        hop_limit: path.map(|path| path.global.map_or(0, |global| global.hop_limit)),
    }
}
