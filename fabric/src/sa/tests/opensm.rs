//! The requests that a real OpenSM took, and its answers.

use super::*;
use crate::mad::method;
use crate::mad::sa::{
    self, ClassPortInfo, InformInfo, InformInfoRecord, McMemberRecord, NodeRecord, NodeType,
    PathRecord, PortInfoRecord, Record, Selected, ServiceRecord, path, status,
};
use proto::{IbMtu, Lid, QKey, ServiceId};

const VECTORS: &str = concat!(
    include_str!("../../../../tests/data/subnet-administration/opensm.txt"),
    include_str!("../../../../tests/data/subnet-administration/opensm-reports.txt"),
    include_str!("../../../../tests/data/subnet-administration/saquery.txt"),
);

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |n| u8::from_str_radix(&hex[n..n + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn vector(name: &str, direction: &str) -> Vec<u8> {
    let wanted = format!("{name} {direction} ");
    let line = VECTORS.lines().find_map(|l| l.strip_prefix(&wanted));
    bytes(line.unwrap())
}

/// Asks; the request must be the one that OpenSM got, and OpenSM's answer is the answer.
pub(super) fn ask(name: &str, request: Request) -> Result<Response, Failure> {
    let expected = vector(name, "sent");
    let tid = header(&expected).transaction_id.get();
    assert_eq!(request.datagram(tid)[..], expected[..], "{name}");
    // The transaction id is random: the answer gets that of the client.
    let mut client = Client::new(config(3));
    let id = client.ask(NOW, request).unwrap();
    assert_eq!(sent(&mut client).len(), 1);
    let mut received = vector(name, "received");
    received[12..16].copy_from_slice(&id.0.to_be_bytes());
    client.receive(NOW, &received);
    match events(&mut client).remove(0) {
        Event::Answered { id: of, result } if of == id => result,
        other => panic!("{other:?}"),
    }
}

pub(super) fn first<R: Record>(name: &str, request: Request) -> R {
    ask(name, request).unwrap().first().unwrap()
}

pub(super) fn broadcast() -> Gid {
    "ff12:401b:ffff::ffff:ffff".parse().unwrap()
}

fn group() -> Gid {
    "ff12:401b:ffff::105".parse().unwrap()
}

fn port(n: u64) -> Gid {
    let mut gid = [0; 16];
    gid[0] = 0xfe;
    gid[1] = 0x80;
    gid[8..].copy_from_slice(&n.to_be_bytes());
    Gid(gid)
}

const ME: u64 = 0x10_0003;
const SM: u64 = 0x10_0001;

#[test]
fn groups_are_joined_created_and_left() {
    let join = |mgid| Request::join(mgid, port(ME), PKey::DEFAULT, JoinState::FULL);
    let member: McMemberRecord = first("join-broadcast", join(broadcast()));
    let expected = McMemberRecord {
        mgid: broadcast(),
        port_gid: port(ME),
        qkey: QKey::IPOIB_DEFAULT,
        mlid: Lid(0xc000),
        mtu: Selected::exactly(4),
        pkey: PKey::DEFAULT,
        rate: Selected::exactly(3),
        lifetime: Selected::exactly(0x12),
        scope: 2,
        join_state: JoinState::FULL,
        ..McMemberRecord::default()
    };
    assert_eq!(member, expected);
    assert_eq!(
        ask("join-absent", join(group())),
        Err(Failure::Status(status::INSUF_COMPS))
    );
    let create = group_join(group(), port(ME), JoinState::SEND_ONLY_FULL_MEMBER);
    let created: McMemberRecord = first("create-send-only", Request::join_or_create(&create));
    assert_eq!((created.mlid, created.join_state.0), (Lid(0xc002), 8));
    let other = GroupJoin {
        mtu: IbMtu::B4096,
        join_state: JoinState::FULL,
        ..create
    };
    let refused = ask("create-other-mtu", Request::join_or_create(&other)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the subnet administrator refused the request: request invalid (status 0x0200)"
    );
    let left: McMemberRecord = first(
        "leave",
        Request::leave(group(), port(ME), JoinState::SEND_ONLY_FULL_MEMBER),
    );
    assert_eq!((left.mgid, left.port_gid), (group(), port(ME)));
    let table = ask("groups", Request::table(sa::MC_MEMBER_RECORD)).unwrap();
    let groups: Vec<McMemberRecord> = table.all().collect();
    assert_eq!((table.record_len, groups.len()), (56, 2));
    assert!(!table.truncated && groups.iter().any(|g| g.mgid == broadcast()));
}

#[test]
fn paths_are_found() {
    let query = |to| Request::path(port(ME), to, PKey::DEFAULT, 0);
    let found: PathRecord = first("path", query(port(SM)));
    assert_eq!((found.sgid, found.dgid), (port(ME), port(SM)));
    assert_eq!((found.slid, found.dlid), (Lid(3), Lid(1)));
    assert_eq!((found.mtu.mtu(), found.sl), (Some(IbMtu::B2048), 0));
    assert!(found.reversible && found.pkey == PKey::DEFAULT);
    let mut unknown = port(SM);
    unknown.0[15] = 0x99;
    assert_eq!(
        ask("path-unknown", query(unknown)),
        Err(Failure::Status(status::NO_RECORDS))
    );
    // ibsim delivers less than two records of a longer table.
    let from_me = PathRecord {
        dgid: port(SM),
        sgid: port(ME),
        numb_path: 0x7f,
        pkey: PKey::DEFAULT,
        ..PathRecord::default()
    };
    let request = Request::table_like(path::SGID | path::NUMB_PATH, &from_me);
    let table = ask("paths", request).unwrap();
    assert!(table.truncated && table.data.len() == 168);
    let paths: Vec<PathRecord> = table.all().collect();
    assert_eq!(paths.len(), 2);
    assert!(paths.iter().all(|p| p.sgid == port(ME)));
}

#[test]
fn nodes_and_ports_are_described() {
    let node: NodeRecord = first("node", Request::node(Lid(1)));
    assert_eq!((node.lid, node.node_type), (Lid(1), NodeType::CA));
    assert_eq!(node.description(), "H1");
    assert_eq!(node.port_guid.0, SM.to_be_bytes());
    let port: PortInfoRecord = first("port-info", Request::port_info(Lid(1)));
    assert_eq!((port.lid, port.port), (Lid(1), 1));
    let info = port.info;
    assert_eq!((info.lid, info.sm_lid, info.state_name()), (1, 1, "Active"));
    assert_eq!(info.mtu_cap(), Some(IbMtu::B2048));
    assert_eq!(info.neighbor_mtu(), Some(IbMtu::B2048));
    assert_eq!((info.phys_state, info.sm_sl, info.lmc), (5, 0, 0));
    assert_eq!((info.speed_active, info.width_active), (1, 2));
    assert_eq!(info.gid_prefix, 0xfe80 << 48);
    let abilities: ClassPortInfo = first("class-port-info", Request::class_port_info());
    assert!(abilities.send_only_full_member());
    assert_eq!((abilities.base_version, abilities.class_version), (1, 2));
    assert_eq!(abilities.capability_mask, 0x2602);
    assert_eq!(abilities.resp_time_code, 16);
    assert_eq!(abilities.redirect.qkey, QKey::GSI);
}

#[test]
fn services_are_registered_and_found() {
    let mut data = [0; 64];
    data.iter_mut().zip(0..).for_each(|(to, n)| *to = n);
    let record = ServiceRecord {
        id: ServiceId(0x1000_0000_0000_0042),
        gid: port(ME),
        pkey: PKey::DEFAULT,
        lease: sa::service::LEASE_INFINITE,
        key: [0; 16],
        name: ServiceRecord::name_bytes("ibtap"),
        data,
    };
    // The last 8 bytes did not reach OpenSM.
    let mut kept = record;
    kept.data[56..].fill(0);
    let request = Request::new(method::SET, sa::service::REGISTER, &record);
    assert_eq!(first::<ServiceRecord>("register", request), kept);
    let table = ask("services", Request::table_like(sa::service::ID, &record)).unwrap();
    assert_eq!(table.all::<ServiceRecord>().collect::<Vec<_>>(), [kept]);
    let request = Request::new(method::DELETE, sa::service::UNREGISTER, &record);
    assert_eq!(first::<ServiceRecord>("unregister", request), kept);
    let none = ask(
        "services-after",
        Request::table_like(sa::service::ID, &record),
    )
    .unwrap();
    assert_eq!(none.records().count(), 0);
}

#[test]
fn subscriptions_are_taken() {
    let info: InformInfo = first("subscribe-66", Request::subscribe(66));
    assert_eq!(info, InformInfo::of_trap(66, true));
    let info: InformInfo = first("unsubscribe-66", Request::unsubscribe(66));
    assert!(!info.subscribe);
    let request = Request::table(sa::INFORM_INFO_RECORD);
    let table = ask("inform-info-records", request).unwrap();
    let records: Vec<InformInfoRecord> = table.all().collect();
    assert_eq!((table.record_len, records.len()), (64, 2));
    let mut traps: Vec<u16> = records.iter().map(|r| r.info.trap).collect();
    traps.sort_unstable();
    assert_eq!(traps, [66, 67]);
    assert!(records.iter().all(|r| r.subscriber == port(ME)));
}

/// OpenSM leaves the bytes of the details that a trap does not use as they are in its memory.
#[test]
fn reports_are_read_and_answered() {
    let gid = |text: &str| text.parse::<Gid>().unwrap();
    let (port, group) = (gid("fe80::99:ff:fe00:10"), gid("ff12:401b:ffff::f01:203"));
    for (trap, of) in [(64, port), (65, port), (66, group), (67, group)] {
        let name = format!("report-{trap}");
        let mut client = Client::new(config(3));
        client.receive(NOW, &vector(&name, "received"));
        let [Event::Reported(notice)] = events(&mut client)[..] else {
            panic!("{name}: no Report");
        };
        assert_eq!((notice.trap, notice.gid()), (trap, Some(of)));
        assert_eq!(
            (notice.is_generic, notice.kind, notice.producer),
            (true, 3, 4)
        );
        assert_eq!(notice.issuer_lid, Lid(1));
        assert_eq!(notice.issuer_gid, gid("fe80::99:ff:fe00:1"));
        let answers = sent(&mut client).concat();
        assert_eq!(answers, vector(&name, "sent"), "{name}");
    }
}
