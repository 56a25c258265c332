//! The requests that saquery sent to a real OpenSM, and OpenSM's answers.

use super::opensm::{ask, broadcast, first};
use super::*;
use crate::mad::sa::{
    self, ClassPortInfo, InformInfoRecord, McMemberRecord, NodeRecord, PathRecord, PortInfoRecord,
    Record, ServiceRecord, mc_member, path,
};
use proto::{IbMtu, Lid, QKey};

fn gid(text: &str) -> Gid {
    text.parse().unwrap()
}

/// Asks as saquery asks; returns all records.
fn ask_as_saquery<R: Record>(name: &str, request: Request) -> Vec<R> {
    let table = ask(&format!("saquery-{name}"), request).unwrap();
    table.all().collect()
}

#[test]
fn saquery_asks_for_groups_as_we_do() {
    let any = McMemberRecord::default();
    let (mlid, mgid, port_gid) = (Lid(0xc000), broadcast(), gid("fe80::99:ff:fe00:20"));
    for (name, mask, record) in [
        ("mlid", mc_member::MLID, McMemberRecord { mlid, ..any }),
        ("mgid", mc_member::MGID, McMemberRecord { mgid, ..any }),
        (
            "pkey",
            mc_member::PKEY,
            McMemberRecord {
                pkey: PKey::DEFAULT,
                ..any
            },
        ),
    ] {
        let name = format!("members-of-{name}");
        let groups = ask_as_saquery::<McMemberRecord>(&name, Request::table_like(mask, &record));
        let [group] = groups[..] else {
            panic!("{name}: {groups:?}");
        };
        assert_eq!((group.mgid, group.mlid), (broadcast(), mlid));
        assert_eq!(
            (group.qkey, group.mtu.mtu()),
            (QKey::IPOIB_DEFAULT, Some(IbMtu::B2048))
        );
    }
    let request = Request::table(sa::MC_MEMBER_RECORD);
    assert_eq!(ask_as_saquery::<McMemberRecord>("groups", request).len(), 1);
    // No member is a port that OpenSM knows.
    let request = Request::memberships(port_gid);
    assert_eq!(
        ask_as_saquery::<McMemberRecord>("members-of-gid", request),
        []
    );
    let request = Request::group(broadcast());
    assert_eq!(
        ask_as_saquery::<McMemberRecord>("members-of-mgid", request).len(),
        1
    );
}

#[test]
fn saquery_asks_for_paths_nodes_and_ports_as_we_do() {
    let asked = PathRecord {
        numb_path: 0x7f,
        ..PathRecord::default()
    };
    let (sgid, dgid) = (gid("fe80::99:ff:fe00:10"), gid("fe80::99:ff:fe00:20"));
    let (slid, dlid) = (Lid(0x10), Lid(0x20));
    let of_lids = PathRecord {
        slid,
        dlid,
        ..asked
    };
    let of_gids = PathRecord {
        sgid,
        dgid,
        ..asked
    };
    for (name, mask, record) in [
        ("path-lids", path::SLID | path::DLID, of_lids),
        ("path-gids", path::SGID | path::DGID, of_gids),
    ] {
        let request = Request::table_like(mask | path::NUMB_PATH, &record);
        let paths = ask_as_saquery::<PathRecord>(name, request);
        let [path] = paths[..] else {
            panic!("{name}: {paths:?}");
        };
        assert_eq!((path.sgid, path.dgid), (sgid, dgid));
        assert_eq!((path.slid, path.dlid, path.hop_limit), (slid, dlid, 0));
    }
    let nodes = ask_as_saquery::<NodeRecord>("node-lid", Request::node(dlid));
    let names: Vec<String> = nodes.iter().map(NodeRecord::description).collect();
    assert_eq!(names, ["host2"]);
    // ibsim delivers one record and a half of the table.
    let request = Request::table(sa::NODE_RECORD);
    assert_eq!(ask_as_saquery::<NodeRecord>("nodes", request).len(), 1);
    let ports = ask_as_saquery::<PortInfoRecord>("port-info", Request::port_info(dlid));
    assert_eq!(
        (ports.len(), ports[0].info.lid, ports[0].info.sm_lid),
        (1, 0x20, 1)
    );
    let info: ClassPortInfo = first("saquery-class-port-info", Request::class_port_info());
    assert!(info.send_only_full_member());
    let request = Request::table(sa::SERVICE_RECORD);
    assert_eq!(ask_as_saquery::<ServiceRecord>("services", request), []);
    let request = Request::table(sa::INFORM_INFO_RECORD);
    assert_eq!(
        ask_as_saquery::<InformInfoRecord>("subscriptions", request),
        []
    );
}
