//! What the subnet manager and the subnet administrator told a port on InfiniBand.

use std::fmt::Write;

use control::api::{GroupInfo, GroupRecord, InterfaceInfo, PathInfo};
use control::debugfs_dumps;
use fabric::mad::sa::JoinState;

/// The subnet manager of an interface's port.
pub fn manager(interface: &InterfaceInfo) -> String {
    match (interface.sm_lid, interface.sm_sl) {
        (Some(lid), Some(sl)) => format!("LID {lid:#06x}, SL {sl}"),
        _ => "none".to_owned(),
    }
}

/// The port's membership in a group, and the group's parameters.
pub fn membership(record: &GroupRecord) -> String {
    let mut text = format!(
        "{}, MLID {:#06x}, SL {}",
        JoinState(record.join_state),
        record.mlid,
        record.sl
    );
    // Writing to a string does not fail.
    if let Some(mbps) = record.rate_mbps {
        let _ = write!(text, ", {} Gbit/s", f64::from(mbps) / 1000.0);
    }
    if let Some(mtu) = record.mtu {
        let _ = write!(text, ", MTU {mtu}");
    }
    text + &format!(", Q_Key {}", record.qkey)
}

/// `ibtap mcg`: debugfs' `ipoib/<dev>_mcg`. On InfiniBand, each group has two lines more.
pub fn groups(groups: &[GroupInfo]) -> String {
    let text = |group: &GroupInfo| {
        let dump = debugfs_dumps::groups(std::slice::from_ref(group));
        let more = group.record.map(|record| {
            let (mlid, state) = (record.mlid, JoinState(record.join_state));
            format!(
                "  MLID: {:>13}\n  JoinState: {state}\n",
                format!("{mlid:#06x}")
            )
        });
        with_lines(dump, more)
    };
    groups.iter().map(text).collect()
}

/// `ibtap path`: debugfs' `ipoib/<dev>_path`. On InfiniBand, each resolved path has two lines more.
pub fn paths(paths: &[PathInfo]) -> String {
    let text = |path: &PathInfo| {
        let dump = debugfs_dumps::paths(std::slice::from_ref(path));
        let more = path.mtu.map(|mtu| {
            format!(
                "  MTU: {mtu:>11}\n  HopLimit: {:>6}\n",
                path.hop_limit.unwrap_or(0)
            )
        });
        with_lines(dump, more)
    };
    paths.iter().map(text).collect()
}

/// The dump of an entry with lines before its empty last line.
fn with_lines(dump: String, more: Option<String>) -> String {
    match (dump.strip_suffix('\n'), more) {
        (Some(entry), Some(more)) => format!("{entry}{more}\n"),
        _ => dump,
    }
}

#[cfg(test)]
mod tests {
    use fabric::QKey;

    use super::*;

    const RECORD: GroupRecord = GroupRecord {
        mlid: 0xc003,
        join_state: 9,
        qkey: QKey::IPOIB_DEFAULT,
        mtu: Some(2048),
        sl: 3,
        rate_mbps: Some(56_250),
    };

    #[test]
    fn a_group_on_a_subnet_has_its_mlid_and_the_membership() {
        let mut group = GroupInfo {
            mgid: "ff12:401b:ffff::1".parse().unwrap(),
            created: 7,
            queuelen: 0,
            complete: true,
            send_only: false,
            record: Some(RECORD),
        };
        let kernel = "GID: ff12:401b:ffff:0:0:0:0:1\n  created:          7\n  queuelen:         0\n  \
                      complete:       yes\n  send_only:       no\n";
        let more = "  MLID:        0xc003\n  JoinState: FullMember,SendOnlyFullMember\n";
        let both = [group.clone(), group.clone()];
        assert_eq!(groups(&both), format!("{kernel}{more}\n").repeat(2));
        group.record = None;
        assert_eq!(groups(&[group]), format!("{kernel}\n"));
        assert_eq!(
            membership(&RECORD),
            "FullMember,SendOnlyFullMember, MLID 0xc003, SL 3, 56.25 Gbit/s, MTU 2048, Q_Key 0x00000b1b"
        );
    }

    #[test]
    fn a_path_on_a_subnet_has_its_mtu_and_hop_limit() {
        let mut path = PathInfo {
            gid: "fe80::2:c903:e7:7e12".parse().unwrap(),
            complete: true,
            dlid: Some(0x12),
            sl: Some(3),
            rate_mbps: Some(10_000),
            mtu: Some(2048),
            hop_limit: Some(64),
        };
        assert_eq!(
            paths(std::slice::from_ref(&path)),
            "GID: fe80:0:0:0:2:c903:e7:7e12\n  complete:    yes\n  DLID:     0x0012\n  SL:            3\n  \
             rate:       10.0 Gb/sec\n  MTU:        2048\n  HopLimit:     64\n\n"
        );
        (path.dlid, path.mtu) = (None, None);
        assert_eq!(
            paths(&[path]),
            "GID: fe80:0:0:0:2:c903:e7:7e12\n  complete:    yes\n\n"
        );
    }
}
