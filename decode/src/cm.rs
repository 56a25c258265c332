//! Fields of communication management messages (IBA vol. 1, 12.6).

use std::fmt::Write;
use std::net::{Ipv6Addr, SocketAddr};

use fabric::mad::cm::{Message, Mra, Path, RdmaCmData, RdmaCmHeader, Rej, Rep, Req};
use fabric::{Guid, RejectReason, ServiceId};

use super::record::{Fields, Value};
use super::values::{count, number, text};

/// The important fields, in wire order.
pub fn fields(message: &Message<'_>) -> Fields {
    match message {
        Message::Req(m) => req(m),
        Message::Rep(m) => rep(m),
        Message::Mra(m) => mra(m),
        Message::Rej(m) => rej(m),
        Message::Rtu(m) => ids(m.local_comm_id.get(), m.remote_comm_id.get()),
        Message::Dreq(m) => {
            let mut fields = ids(m.local_comm_id.get(), m.remote_comm_id.get());
            fields.push(("remote_qpn", number(m.remote_qpn().get())));
            fields
        }
        Message::Drep(m) => ids(m.local_comm_id.get(), m.remote_comm_id.get()),
        Message::SidrReq(m) => vec![
            ("request_id", number(m.request_id.get())),
            ("pkey", number(m.pkey.get())),
            ("service_id", service(m.service_id.get())),
        ]
        .into_iter()
        .chain(asked_with(ServiceId(m.service_id.get()), &m.private_data))
        .collect(),
        Message::SidrRep(m) => vec![
            ("request_id", number(m.request_id.get())),
            ("status", number(m.status)),
            ("qpn", number(m.local_qpn().get())),
            ("service_id", service(m.service_id.get())),
            ("qkey", number(m.qkey.get())),
        ],
        Message::Lap(m) => {
            let mut fields = ids(m.local_comm_id.get(), m.remote_comm_id.get());
            fields.push(("remote_qpn", number(m.remote_qpn().get())));
            fields.push(("local_gid", gid(m.local_gid)));
            fields.push(("remote_gid", gid(m.remote_gid)));
            fields
        }
        Message::Apr(m) => {
            let mut fields = ids(m.local_comm_id.get(), m.remote_comm_id.get());
            fields.push(("status", number(m.status)));
            fields
        }
    }
}

fn req(m: &Req) -> Fields {
    let mut fields = vec![
        ("local_comm_id", number(m.local_comm_id.get())),
        ("service_id", service(m.service_id.get())),
        ("local_ca_guid", guid(m.local_ca_guid)),
        ("local_qpn", number(m.local_qpn().get())),
        ("starting_psn", number(m.starting_psn().get())),
        ("pkey", number(m.pkey.get())),
        ("transport", transport(m)),
        ("path_mtu", mtu(m.path_mtu())),
        ("srq", count(m.srq())),
        ("responder_resources", count(m.responder_resources)),
        ("initiator_depth", count(m.initiator_depth)),
        ("retry_count", count(m.retry_count())),
        ("rnr_retry_count", count(m.rnr_retry())),
        ("max_cm_retries", count(m.max_cm_retries())),
        (
            "remote_cm_response_timeout",
            Value::Time(m.remote_response_timeout()),
        ),
        (
            "local_cm_response_timeout",
            Value::Time(m.local_response_timeout()),
        ),
    ];
    fields.extend(path(&m.primary));
    if m.alternate.local_lid.get() != 0 {
        fields.push(("alternate_local_gid", gid(m.alternate.local_gid)));
        fields.push(("alternate_remote_gid", gid(m.alternate.remote_gid)));
    }
    let service = ServiceId(m.service_id.get());
    fields.extend(asked_with(service, &m.private_data));
    fields
}

/// The private data of a request. With a service of rdma_cm, it starts with the addresses of both sides; in
/// a request of ibtap, the listener's queue pair follows.
fn asked_with(service: ServiceId, data: &[u8]) -> Fields {
    let header = RdmaCmHeader::split(data).filter(|_| service.is_rdma_cm());
    let parts = header.and_then(|(header, rest)| Some((header.addresses()?, rest)));
    let Some((addresses, rest)) = parts else {
        return private_data(data, serves_ipoib(service));
    };
    let source = SocketAddr::new(addresses.source.to_ip(), addresses.port);
    let mut fields = vec![
        ("rdma_cm_source", text(source)),
        ("rdma_cm_destination", text(addresses.destination.to_ip())),
    ];
    let ours = service.rdma_cm_port() == Some(ipoib::RDMA_CM_PORT);
    if let Some(data) = RdmaCmData::read(rest).filter(|_| ours) {
        fields.push(("to_qpn", number(data.to().get())));
        let ipoib = looks_like_ipoib(&data.private_data);
        fields.extend(private_data(&data.private_data, ipoib));
    } else {
        fields.extend(private_data(rest, false));
    }
    fields
}

fn rep(m: &Rep) -> Fields {
    let mut fields = ids(m.local_comm_id.get(), m.remote_comm_id.get());
    fields.extend([
        ("local_ca_guid", guid(m.local_ca_guid)),
        ("local_qpn", number(m.local_qpn().get())),
        ("starting_psn", number(m.starting_psn().get())),
        ("srq", count(m.srq())),
        ("responder_resources", count(m.responder_resources)),
        ("initiator_depth", count(m.initiator_depth)),
        ("rnr_retry_count", count(m.rnr_retry())),
        ("target_ack_delay", Value::Time(m.target_ack_delay())),
    ]);
    // Only the request names the service.
    let ipoib = looks_like_ipoib(&m.private_data);
    fields.extend(private_data(&m.private_data, ipoib));
    fields
}

fn mra(m: &Mra) -> Fields {
    let mut fields = ids(m.local_comm_id.get(), m.remote_comm_id.get());
    fields.push(("message", text(m.answered().name())));
    fields.push(("service_timeout", Value::Time(m.service_timeout())));
    fields
}

fn rej(m: &Rej) -> Fields {
    let reason = m.reason.get();
    let name = fabric::RejectReason(reason).name();
    let reason = match name {
        Some(_) => format!("{reason} ({})", RejectReason(reason)),
        None => reason.to_string(),
    };
    let mut fields = ids(m.local_comm_id.get(), m.remote_comm_id.get());
    fields.push(("message", text(m.rejected().name())));
    fields.push(("reason", Value::Text(reason)));
    let ari = m.ari.get(..m.ari_length().into()).unwrap_or(&m.ari);
    if !ari.is_empty() {
        fields.push(("ari", Value::Text(hex(ari))));
    }
    fields.extend(private_data(&m.private_data, false));
    fields
}

fn ids(local: u32, remote: u32) -> Fields {
    vec![
        ("local_comm_id", number(local)),
        ("remote_comm_id", number(remote)),
    ]
}

fn path(p: &Path) -> Fields {
    vec![
        ("local_gid", gid(p.local_gid)),
        ("remote_gid", gid(p.remote_gid)),
        ("hop_limit", count(p.hop_limit)),
        ("local_ack_timeout", Value::Time(p.ack_timeout())),
    ]
}

fn transport(m: &Req) -> Value {
    text(match (m.transport_service(), m.extended_transport()) {
        (0, _) => "RC",
        (1, _) => "UC",
        (2, _) => "RD",
        (_, 1) => "XRC",
        _ => "reserved",
    })
}

fn mtu(code: u8) -> Value {
    match code {
        1..=5 => Value::Count(128 << code),
        _ => Value::Text(format!("code {code}")),
    }
}

/// Whether the service is IPoIB's: a prefix and the queue pair number of an interface. The prefix is Linux's
/// (drivers/infiniband/ulp/ipoib/ipoib_cm.c, `IPOIB_CM_IETF_ID`) or that of RFC 4755, section 3.5.
fn serves_ipoib(service: ServiceId) -> bool {
    matches!(service.0 >> 24, 0x10_0000_0000 | 0x01_0000_0000)
}

/// Whether private data can be IPoIB's: a queue pair, a possible MTU of IP, zeros.
fn looks_like_ipoib(data: &[u8]) -> bool {
    let Some(([0, q0, q1, q2, 0, m0, m1, m2], rest)) = data.split_first_chunk::<8>() else {
        return false;
    };
    let (qpn, mtu) = ([*q0, *q1, *q2], u32::from_be_bytes([0, *m0, *m1, *m2]));
    qpn != [0; 3] && (68..=0x1_0000).contains(&mtu) && rest.iter().all(|b| *b == 0)
}

/// Private data, unless it is all zero. IPoIB's is the sender's UD queue pair and its largest message,
/// including the encapsulation header (RFC 4755, 6).
fn private_data(data: &[u8], ipoib: bool) -> Fields {
    if ipoib && let Some((head, _)) = data.split_first_chunk::<8>() {
        let [_, q0, q1, q2, m0, m1, m2, m3] = *head;
        return vec![
            ("ud_qpn", number(u32::from_be_bytes([0, q0, q1, q2]))),
            ("receive_mtu", count(u32::from_be_bytes([m0, m1, m2, m3]))),
        ];
    }
    match data.iter().rposition(|b| *b != 0) {
        Some(last) => vec![("private_data", Value::Text(hex(&data[..=last])))],
        None => Fields::new(),
    }
}

fn service(id: u64) -> Value {
    text(ServiceId(id))
}

fn guid(bytes: [u8; 8]) -> Value {
    text(Guid(bytes))
}

fn gid(bytes: [u8; 16]) -> Value {
    text(Ipv6Addr::from(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, b| {
        // Writing to a string does not fail.
        let _ = write!(text, "{b:02x}");
        text
    })
}
