//! The broadcast group of an interface on InfiniBand.

use control::api::{InterfaceInfo, LinkLayer, PortState};

use crate::doctor::finding::{Finding, Level};

/// What to do if the subnet administrator refuses the broadcast group of an interface; `None` if it does not.
pub fn refused(interface: &InterfaceInfo) -> Option<&'static str> {
    // If the kernel refuses the group's Q_Key, the reason has its own advice.
    let is_group = |reason: &str| reason.contains("broadcast group") && !reason.contains("Q_Key");
    let refused = interface.link_layer == LinkLayer::InfiniBand
        && interface.state == PortState::Active
        && interface.reason.as_deref().is_some_and(is_group);
    refused.then_some(
        "in the subnet manager, the partition needs a broadcast group for IPoIB (OpenSM: the flag ipoib in \
         partitions.conf) with a rate and an MTU that this port has, and this port as a member; ibtapd \
         repeats the request",
    )
}

/// Judges the MTU of the broadcast group by the port's; no finding if they are equal.
pub fn judge(interface: &InterfaceInfo) -> Option<Finding> {
    let of_group = interface.broadcast_record?.mtu?;
    let of_port = interface.link_mtu;
    (of_group < of_port).then(|| {
        let found = format!(
            "the MTU of the broadcast group is {of_group}, the port's is {of_port}: datagrams have at most \
             {of_group} bytes"
        );
        Finding::new("mtu", Level::Note, interface.qualified_name(), found).advise(
            "for larger datagrams, raise the MTU of the broadcast group in the subnet manager (OpenSM: mtu=5 \
             in partitions.conf is 4096); all ports of the partition must have this MTU",
        )
    })
}

#[cfg(test)]
mod tests {
    use control::api::GroupRecord;
    use fabric::QKey;

    use super::*;
    use crate::doctor::daemon::tests::interface;

    fn on_subnet() -> InterfaceInfo {
        InterfaceInfo {
            link_layer: LinkLayer::InfiniBand,
            link_mtu: 2048,
            broadcast_record: Some(GroupRecord {
                mlid: 0xc000,
                join_state: 1,
                qkey: QKey::IPOIB_DEFAULT,
                mtu: Some(2048),
                sl: 0,
                rate_mbps: None,
            }),
            ..interface()
        }
    }

    #[test]
    fn a_group_with_a_smaller_mtu_than_the_port_is_noted() {
        assert_eq!(judge(&interface()), None);
        let mut served = on_subnet();
        assert_eq!(judge(&served), None);
        served.link_mtu = 4096;
        let finding = judge(&served).unwrap();
        assert_eq!((finding.level, &*finding.subject), (Level::Note, "ib0"));
        assert!(finding.found.contains("is 2048, the port's is 4096"));
        // A record with a reserved code has no MTU.
        served.broadcast_record.as_mut().unwrap().mtu = None;
        assert_eq!(judge(&served), None);
    }

    #[test]
    fn a_refused_broadcast_group_is_for_the_subnet_manager() {
        let mut served = on_subnet();
        assert_eq!(refused(&served), None);
        served.carrier = false;
        served.reason = Some("cannot join its broadcast group, retrying: denied".into());
        let advice = refused(&served).unwrap();
        assert!(advice.contains("partitions.conf"), "{advice}");
        let found = crate::doctor::daemon::state(&served);
        assert_eq!(found.advice.as_deref(), Some(advice));
        assert!(found.found.contains("denied"), "{}", found.found);
        // The subnet administrator has accepted the join, and the kernel refuses the group's Q_Key.
        served.reason = Some(
            "cannot join its broadcast group, retrying: the group's Q_Key 0x80000b1b is controlled"
                .into(),
        );
        assert_eq!(refused(&served), None);
        // Another reason, and another fabric.
        served.reason = Some("its parent ib0 is down".into());
        assert_eq!(refused(&served), None);
        served.reason = Some("cannot join its broadcast group, retrying: full".into());
        served.link_layer = LinkLayer::Ethernet;
        assert_eq!(refused(&served), None);
    }
}
