//! Generated interface addresses.

use proto::Mac;

use crate::Lid;

/// Bit of the first octet: locally administered.
const LOCAL: u8 = 0x02;
/// Bit of the first octet: group address.
const GROUP: u8 = 0x01;

/// Returns a locally administered address that contains the port's LID in its last three octets, least
/// significant first. A sender without a table entry derives the LID from them (kernel opa_vnic_encap.c,
/// `opa_vnic_get_dlid`). Before them are 10 bits of fabric and 12 of switch, also least significant first.
/// Of Omni-Path's own generator (`cs_gen_lmac` of the Fabric Manager) only one example is public; this
/// function reproduces it.
#[must_use]
pub const fn generated_mac(fabric_id: u16, vesw_id: u16, lid: Lid, multicast: bool) -> Mac {
    let [fabric_high, fabric_low] = (fabric_id & 0x3ff).to_be_bytes();
    let [switch_high, switch_low] = (vesw_id & 0xfff).to_be_bytes();
    let [_, a, b, c] = lid.get().to_be_bytes();
    let group = if multicast { GROUP } else { 0 };
    [
        fabric_low << 2 | LOCAL | group,
        fabric_high << 2 | fabric_low >> 6 | switch_low << 4,
        switch_high << 4 | switch_low >> 4,
        c,
        b,
        a,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e01_the_published_example_and_three_of_the_same_rule() {
        let mac = |fabric_id, vesw_id, lid| generated_mac(fabric_id, vesw_id, Lid::new(lid), false);
        assert_eq!(mac(0x301, 2, 5), [0x06, 0x2c, 0x00, 0x05, 0x00, 0x00]);
        assert_eq!(mac(0, 1, 1), [0x02, 0x10, 0x00, 0x01, 0x00, 0x00]);
        assert_eq!(mac(1, 0x123, 0x12345), [0x06, 0x30, 0x12, 0x45, 0x23, 0x01]);
        assert_eq!(
            mac(0x155, 0xaaa, 0xc001),
            [0x56, 0xa5, 0xaa, 0x01, 0xc0, 0x00]
        );
    }

    #[test]
    fn no_two_ports_share_an_address() {
        let mut all = std::collections::BTreeSet::new();
        let mut made = 0;
        for fabric_id in (0..1024).step_by(33) {
            for vesw_id in (0..4096).step_by(65) {
                for lid in [1, 0x100, 0xef_ffff] {
                    for multicast in [false, true] {
                        let mac = generated_mac(fabric_id, vesw_id, Lid::new(lid), multicast);
                        assert_eq!(mac[0] & 3, if multicast { 3 } else { 2 });
                        all.insert(mac);
                        made += 1;
                    }
                }
            }
        }
        assert_eq!(all.len(), made);
    }
}
