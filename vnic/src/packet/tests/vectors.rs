//! The vectors of tests/data/opa_vnic_vectors.json: encoding and decoding.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    encode_vectors: Vec<EncodeVector>,
    decode_vectors: Vec<DecodeVector>,
}

#[derive(Deserialize)]
struct EncodeVector {
    name: String,
    profile: String,
    fields: Fields,
    eth_len_in: usize,
    eth_len_encapsulated: usize,
    pad: usize,
    packet_len: usize,
    icrc_u32: u32,
    tail_byte: u8,
    eth_hex: String,
    packet_hex: String,
}

#[derive(Deserialize)]
struct Fields {
    slid: u32,
    dlid: u32,
    length_qw: u16,
    becn: u8,
    fecn: u8,
    sc: u8,
    rc: u8,
    l2: u8,
    lt: u8,
    l4: u8,
    pkey: u16,
    entropy: u16,
    vesw: u16,
}

#[derive(Deserialize)]
struct DecodeVector {
    name: String,
    packet_hex: String,
    expect: String,
    counter: Option<String>,
    rx: Rx,
}

#[derive(Deserialize)]
struct Rx {
    local_lid: u32,
    joined_mlids: Vec<u32>,
    local_vesw_ids: Vec<u16>,
    pkey: u16,
    eth_mtu: u16,
    port_up: bool,
    icrc_profile: String,
}

impl Fields {
    fn header(&self) -> Header16B {
        Header16B {
            slid: Lid::new(self.slid),
            dlid: Lid::new(self.dlid),
            length_qw: self.length_qw,
            becn: self.becn != 0,
            fecn: self.fecn != 0,
            sc: self.sc,
            rc: self.rc,
            l2: self.l2,
            lt: self.lt != 0,
            l4: self.l4,
            pkey: PKey::new(self.pkey),
            entropy: self.entropy,
            vesw_id: self.vesw,
        }
    }
}

fn vectors() -> Vectors {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/data/opa_vnic_vectors.json"
    );
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    let pair = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(pair).collect()
}

fn profile(name: &str) -> Profile {
    match name {
        "mem" => Profile::Mem,
        "wire0" => Profile::Wire0,
        "wire_sw32" => Profile::WireSw32,
        other => panic!("profile {other}"),
    }
}

#[test]
fn c18_c20_c26_every_encode_vector_is_written_byte_for_byte() {
    let all = vectors().encode_vectors;
    assert_eq!(all.len(), 43);
    for v in all {
        let (eth, profile) = (hex(&v.eth_hex), profile(&v.profile));
        assert_eq!(eth.len(), v.eth_len_in, "{}", v.name);
        assert_eq!(packet_len(eth.len()), v.packet_len, "{}", v.name);
        assert_eq!(pad(eth.len()), v.pad, "{}", v.name);
        let written = encoded(&v.fields.header(), &eth, profile);
        assert_eq!(written, hex(&v.packet_hex), "{}", v.name);
        assert_eq!(stored_icrc(&written), Some(v.icrc_u32), "{}", v.name);
        assert_eq!(written.last(), Some(&v.tail_byte), "{}", v.name);
    }
}

#[test]
fn c21_c22_every_encode_vector_reads_as_its_fields_and_its_frame() {
    for v in vectors().encode_vectors {
        let packet = hex(&v.packet_hex);
        let read = decode(&packet, profile(&v.profile), Strictness::Strict);
        let read = read.unwrap_or_else(|why| panic!("{}: {why:?}", v.name));
        assert_eq!(read.header, v.fields.header(), "{}", v.name);
        let mut eth = hex(&v.eth_hex);
        eth.resize(v.eth_len_encapsulated, 0);
        assert_eq!(read.frame, eth, "{}", v.name);
    }
}

#[test]
fn c28_every_decode_vector_has_its_verdict() {
    let all = vectors().decode_vectors;
    assert_eq!(all.len(), 14);
    for v in all {
        // As in the driver, the two upper bits of the tail (LT) are ignored.
        let packet = hex(&v.packet_hex);
        let groups: Vec<Lid> = v.rx.joined_mlids.iter().map(|m| Lid::new(*m)).collect();
        let receiver = Receiver {
            lid: Lid::new(v.rx.local_lid),
            groups: &groups,
            pkey: PKey::new(v.rx.pkey),
            vesw_id: v.rx.local_vesw_ids[0],
            forwarding: v.rx.port_up,
            eth_mtu: v.rx.eth_mtu,
        };
        for strictness in [Strictness::Strict, Strictness::Lenient] {
            let verdict = decode(&packet, profile(&v.rx.icrc_profile), strictness)
                .and_then(|d| admit(&d, &receiver, Arrival::Addressed));
            let counter = verdict.err().map(Refusal::counter);
            assert_eq!(counter, v.counter.as_deref(), "{}", v.name);
            assert_eq!(v.expect == "accept", verdict.is_ok(), "{}", v.name);
        }
    }
}
