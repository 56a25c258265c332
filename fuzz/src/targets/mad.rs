//! Management datagrams, header and names.

use fabric::mad::Mad;
use fabric::mad::cm::{Message, RdmaCmHeader};

pub fn run(data: &[u8]) {
    if let Ok(mad) = Mad::parse(data) {
        assert_eq!(mad.to_bytes(), data);
        assert!(!mad.header.to_string().is_empty());
        let _ = mad.subnet_administration();
        let private_data = match mad.communication_management() {
            Some(Message::Req(m)) => &m.private_data[..],
            Some(Message::SidrReq(m)) => &m.private_data[..],
            _ => return,
        };
        let (header, _) = RdmaCmHeader::split(private_data).expect("as many bytes");
        if let Some(addresses) = header.addresses() {
            let again = RdmaCmHeader::new(&addresses).expect("two of one family");
            assert_eq!(again.addresses(), Some(addresses));
        }
    }
}
