use proptest::prelude::*;

use super::*;

fn header(mgmt_class: u8, method: u8, attribute: u16, status: u16) -> Header {
    Header {
        base_version: BASE_VERSION,
        mgmt_class,
        class_version: 2,
        method,
        status: U16::new(status),
        class_specific: U16::new(0),
        transaction_id: U64::new(0x1_0000_0002),
        attribute_id: U16::new(attribute),
        reserved: U16::new(0),
        attribute_modifier: U32::new(0),
    }
}

#[test]
fn headers_read_as_the_names_of_the_field() {
    let name = |c, m, a, s| header(c, m, a, s).to_string();
    assert_eq!(name(7, 3, 0x10, 0), "CM ConnectRequest");
    assert_eq!(name(3, 1, 0x35, 0), "SA Get PathRecord");
    assert_eq!(
        name(3, 0x81, 0x38, 0x0200),
        "SA GetResp MCMemberRecord status 0x0200 (request invalid)"
    );
    assert_eq!(name(4, 1, 0x12, 0), "PerfMgt Get PortCounters");
    assert_eq!(
        name(7, 0x81, 0x10, 0x000c),
        "CM GetResp ConnectRequest status 0x000c (unsupported method and attribute)"
    );
    assert_eq!(
        name(0xee, 0x44, 0xbeef, 0xff00),
        "class 0xee method 0x44 attribute 0xbeef status 0xff00"
    );
}

#[test]
fn the_header_is_the_wires_24_bytes() {
    let h = header(7, 3, 0x15, 0);
    let expected = [
        1, 7, 2, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0x15, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(h.as_bytes(), expected);
}

#[test]
fn other_lengths_and_base_versions_are_refused() {
    let mut bytes = Mad {
        header: header(3, 1, 0x35, 0),
        data: &[7; 232],
    }
    .to_bytes();
    assert!(Mad::parse(&bytes).is_ok());
    assert_eq!(Mad::parse(&bytes[..255]), Err(Malformed::Length(255)));
    assert_eq!(Mad::parse(&bytes[..3]), Err(Malformed::Length(3)));
    let mut long = bytes.to_vec();
    long.push(0);
    assert_eq!(Mad::parse(&long), Err(Malformed::Length(257)));
    bytes[0] = 2;
    assert_eq!(Mad::parse(&bytes), Err(Malformed::BaseVersion(2)));
}

#[test]
fn only_subnet_administration_has_its_header() {
    let mut data = [0; 232];
    data[31] = 0x83;
    data[32] = 0xff;
    let mad = |class| Mad {
        header: header(class, 2, 0x38, 0),
        data: &data,
    };
    let sa = mad(class::SUBN_ADM);
    let (head, record) = sa.subnet_administration().unwrap();
    assert_eq!(head.component_mask.get(), 0x83);
    assert_eq!((record.len(), record[0]), (200, 0xff));
    assert!(mad(class::COM_MGT).subnet_administration().is_none());
}

proptest! {
    #[test]
    fn datagrams_of_any_content_round_trip(mut bytes in prop::collection::vec(any::<u8>(), MAD_LEN)) {
        bytes[0] = BASE_VERSION;
        let mad = Mad::parse(&bytes).unwrap();
        prop_assert_eq!(&mad.to_bytes()[..], &bytes[..]);
        let _ = mad.header.to_string();
    }
}
