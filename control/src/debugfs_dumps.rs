//! The formats of the kernel's debugfs files (`drivers/infiniband/ulp/ipoib/ipoib_fs.c`), byte for byte, for
//! programs that parse them.

use crate::api::{GroupInfo, PathInfo};
use proto::Gid;

/// `ipoib/<dev>_mcg`.
pub fn groups(groups: &[GroupInfo]) -> String {
    groups.iter().map(group).collect()
}

/// `ipoib/<dev>_path`.
pub fn paths(paths: &[PathInfo]) -> String {
    paths.iter().map(path).collect()
}

fn group(group: &GroupInfo) -> String {
    format!(
        "GID: {}\n  created: {:>10}\n  queuelen: {:>9}\n  complete: {:>9}\n  send_only: {:>8}\n\n",
        gid(&group.mgid),
        group.created,
        group.queuelen,
        yes_no(group.complete),
        yes_no(group.send_only),
    )
}

fn path(path: &PathInfo) -> String {
    let mut text = format!(
        "GID: {}\n  complete: {:>6}\n",
        gid(&path.gid),
        yes_no(path.complete)
    );
    if let Some(dlid) = path.dlid {
        let rate = path.rate_mbps.unwrap_or(0);
        // Like the kernel, without padding of the remainder: 14062 Mb/s is "14.62".
        text += &format!(
            "  DLID:     {dlid:#06x}\n  SL: {:>12}\n  rate: {:>8}.{} Gb/sec\n",
            path.sl.unwrap_or(0),
            rate / 1000,
            rate % 1000
        );
    }
    text + "\n"
}

/// Eight hexadecimal groups, neither padded nor compressed.
fn gid(gid: &Gid) -> String {
    let groups: Vec<_> = gid
        .0
        .chunks_exact(2)
        .map(|pair| format!("{:x}", u16::from_be_bytes([pair[0], pair[1]])))
        .collect();
    groups.join(":")
}

fn yes_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Item C120: the dumps match debugfs byte for byte.
    #[test]
    fn c120_groups_as_the_kernel_prints_them() {
        let broadcast = GroupInfo {
            mgid: "ff12:401b:ffff::ffff:ffff".parse().unwrap(),
            created: 4_294_892_296,
            queuelen: 0,
            complete: true,
            send_only: false,
            record: None,
        };
        let text = "GID: ff12:401b:ffff:0:0:0:ffff:ffff\n  created: 4294892296\n  queuelen:         0\n  \
                    complete:       yes\n  send_only:       no\n\n";
        assert_eq!(groups(std::slice::from_ref(&broadcast)), text);
        assert_eq!(groups(&[broadcast.clone(), broadcast]), text.repeat(2));
    }

    #[test]
    fn c120_paths_as_the_kernel_prints_them() {
        let mut known = PathInfo {
            gid: "fe80::2:c903:e7:7e12".parse().unwrap(),
            complete: true,
            dlid: Some(0x12),
            sl: Some(0),
            rate_mbps: Some(10_000),
            mtu: None,
            hop_limit: None,
        };
        assert_eq!(
            paths(std::slice::from_ref(&known)),
            "GID: fe80:0:0:0:2:c903:e7:7e12\n  complete:    yes\n  DLID:     0x0012\n  \
             SL:            0\n  rate:       10.0 Gb/sec\n\n"
        );
        known.rate_mbps = Some(14_062);
        assert!(paths(&[known.clone()]).contains("rate:       14.62 Gb/sec\n"));
        known = PathInfo {
            complete: false,
            dlid: None,
            sl: None,
            rate_mbps: None,
            ..known
        };
        assert_eq!(
            paths(&[known]),
            "GID: fe80:0:0:0:2:c903:e7:7e12\n  complete:     no\n\n"
        );
    }
}
