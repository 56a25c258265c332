//! A manager's settings, prepared for the packet path.

use super::flow::DefaultPorts;
use super::frame::{Frame, Traffic};
use crate::Lid;
use crate::attribute::{ConfigState, ServiceClasses, VeswPortInfo};
use crate::packet::{Header16B, Prefix};

/// Minimum MTU of an interface (kernel include/uapi/linux/if_ether.h, `ETH_MIN_MTU`).
const MTU_MIN: u16 = 68;

/// A virtual Ethernet switch, seen from one of its ports.
pub struct Switch {
    /// Fields that are equal in all packets.
    header: Header16B,
    pub fabric_id: u16,
    /// Destination of multicast and broadcast.
    pub multicast: Lid,
    pub default_ports: DefaultPorts,
    /// Largest payload of a frame, in bytes.
    pub eth_mtu: u16,
    /// The manager requests forwarding, and all settings for it are present.
    pub forwards: bool,
    rc: u32,
    classes: ServiceClasses,
}

impl Switch {
    pub fn new(info: &VeswPortInfo) -> Switch {
        let complete = info.vesw_id & 0xfff != 0 && info.encap_slid.is_unicast();
        Switch {
            header: Header16B {
                slid: info.encap_slid,
                pkey: info.pkey,
                vesw_id: info.vesw_id & 0xfff,
                ..Header16B::default()
            },
            fabric_id: info.fabric_id,
            multicast: info.u_mcast_dlid,
            default_ports: DefaultPorts::new(info.def_port_mask, &info.u_ucast_dlid),
            eth_mtu: info.eth_mtu.max(MTU_MIN),
            forwards: complete && info.config_state == ConfigState::Forwarding,
            rc: info.rc,
            classes: info.classes.clone(),
        }
    }

    /// Header of all packets, without the fields that depend on the frame.
    pub fn header(&self) -> &Header16B {
        &self.header
    }

    /// Source LID of all packets.
    pub fn slid(&self) -> Lid {
        self.header.slid
    }

    /// Header of a frame's packets.
    #[inline]
    pub fn prefix(&self, frame: &Frame, dlid: Lid, entropy: u8) -> Prefix {
        Prefix::new(&Header16B {
            dlid,
            sc: self.sc(frame),
            rc: self.rc(frame.traffic),
            entropy: u16::from(entropy),
            ..self.header
        })
    }

    /// Service class, by the priority of the outer tag, or for untagged frames. The kernel's driver has the
    /// same rule, but reads the tag at a wrong offset.
    #[inline]
    fn sc(&self, frame: &Frame) -> u8 {
        let classes = &self.classes;
        let sc = match (frame.priority, frame.is_group()) {
            (None, false) => classes.unicast,
            (None, true) => classes.multicast,
            (Some(pcp), false) => classes.pcp_unicast[usize::from(pcp & 7)],
            (Some(pcp), true) => classes.pcp_multicast[usize::from(pcp & 7)],
        };
        sc & 0x1f
    }

    /// Routing control: three bits of the four for a class of traffic.
    #[inline]
    const fn rc(&self, traffic: Traffic) -> u8 {
        (self.rc >> traffic as u32 & 7) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::testing::vectors;

    fn switch(info: VeswPortInfo) -> Switch {
        Switch::new(&info)
    }

    #[test]
    fn t17_t18_routing_controls_are_those_of_the_vectors() {
        let vectors = vectors();
        let vectors = vectors["rc_vectors"].as_array().unwrap();
        assert!(!vectors.is_empty());
        let classes = [
            (Traffic::Other, "default"),
            (Traffic::Ipv4, "ipv4"),
            (Traffic::Ipv4Udp, "ipv4_udp"),
            (Traffic::Ipv4Tcp, "ipv4_tcp"),
            (Traffic::Ipv6, "ipv6"),
            (Traffic::Ipv6Tcp, "ipv6_tcp"),
            (Traffic::Ipv6Udp, "ipv6_udp"),
        ];
        for v in vectors {
            let word = v["rc_word"].as_str().unwrap().trim_start_matches("0x");
            let rc = u32::from_str_radix(word, 16).unwrap();
            // The upper bit of the four is ignored.
            for rc in [rc, rc | 0x8888_8888] {
                let switch = switch(VeswPortInfo {
                    rc,
                    ..VeswPortInfo::default()
                });
                for (traffic, name) in classes {
                    assert_eq!(u64::from(switch.rc(traffic)), v["extract"][name], "{name}");
                }
            }
        }
    }

    // Only 5 bits of a class are in the header.
    #[test]
    fn t14_t15_t16_service_classes_are_chosen_by_tag_and_kind_of_destination() {
        let s = switch(VeswPortInfo {
            classes: ServiceClasses {
                pcp_unicast: [10, 11, 12, 13, 14, 0xff, 16, 17],
                pcp_multicast: [20, 21, 22, 23, 24, 25, 26, 27],
                unicast: 1,
                multicast: 2,
                ..ServiceClasses::default()
            },
            ..VeswPortInfo::default()
        });
        let sc = |destination: u8, types: &[u8]| {
            let frame = [&[destination; 6][..], &[2; 6], types, &[0; 46]].concat();
            s.sc(&Frame::parse(&frame).unwrap())
        };
        let plain = [8, 0];
        assert_eq!([0x00, 0x01, 0xff].map(|d| sc(d, &plain)), [1, 2, 2]);
        for tag in [[0x81, 0x00], [0x88, 0xa8]] {
            for pcp in 0..8_u8 {
                let types = [tag[0], tag[1], pcp << 5 | 0x1f, 1, 8, 0];
                let expected = if pcp == 5 { 31 } else { 10 + pcp };
                assert_eq!(sc(0x02, &types), expected);
                assert_eq!([0x01, 0xff].map(|d| sc(d, &types)), [20 + pcp; 2]);
            }
        }
    }

    #[test]
    fn s11_s16_a_switch_forwards_when_all_settings_are_present() {
        let whole = VeswPortInfo {
            vesw_id: 1,
            encap_slid: Lid::new(5),
            config_state: ConfigState::Forwarding,
            eth_mtu: 10,
            ..VeswPortInfo::default()
        };
        assert!(switch(whole.clone()).forwards);
        assert_eq!(switch(whole.clone()).eth_mtu, 68);
        let states = [ConfigState::Nop, ConfigState::DropAll, ConfigState::Init];
        for config_state in states {
            assert!(
                !switch(VeswPortInfo {
                    config_state,
                    ..whole.clone()
                })
                .forwards
            );
        }
        assert!(
            !switch(VeswPortInfo {
                vesw_id: 0x1000,
                ..whole.clone()
            })
            .forwards
        );
        assert!(
            !switch(VeswPortInfo {
                encap_slid: Lid::NONE,
                ..whole
            })
            .forwards
        );
    }
}
