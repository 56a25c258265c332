//! Controlled Q_Keys (IBA vol. 1, 10.2.5), which the kernel gives to privileged processes only.

use proto::{EndpointId, QKey};

use super::VerbsPort;
use crate::verbs::endpoint::UdPair;
use crate::verbs::ibv::StateChange;

impl VerbsPort {
    /// Checks with another queue pair that the endpoint may use the Q_Key of its group. Queue pairs that restart with a
    /// refused Q_Key would close the device, for all partitions.
    ///
    /// # Errors
    /// A sentence with the reason.
    pub(super) fn check_qkey(&self, id: EndpointId, qkey: QKey) -> Result<(), String> {
        let has = self.endpoints.get(&id.0).is_none_or(|e| e.qkey == qkey);
        let Some((device, _)) = &self.device else {
            return Ok(());
        };
        if has || !qkey.is_controlled() {
            return Ok(());
        }
        let port = self.config.port;
        let init = StateChange::init_ud(port, self.pkeys.management().index, qkey);
        let tried = UdPair::new(&device.first, port).and_then(|pair| pair.qp.modify(&init));
        tried.map_err(|e| match e.kind() {
            // drivers/infiniband/core/uverbs_cmd.c, modify_qp
            std::io::ErrorKind::PermissionDenied => format!(
                "the group's Q_Key {qkey} is controlled, and the kernel refuses it: start ibtapd with CAP_NET_RAW, \
                 or run `rdma system set privileged-qkey on` (since Linux 6.7); see man ibtap-privileges"
            ),
            _ => format!("cannot use the group's Q_Key {qkey}: {e}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use proto::{EndpointId, Gid, PKey, QKey};

    use crate::group::{GroupParameters, Joined};
    use crate::namespace::Namespace;
    use crate::port::{Port, PortEvent, UdInit};
    use crate::verbs::config::VerbsConfig;
    use crate::verbs::ibv::LinkLayer;
    use crate::verbs::ibv::fake::Fake;
    use crate::verbs::port::VerbsPort;

    const CONTROLLED: QKey = QKey::new(0x8000_0b1b);

    /// The subnet administrator answers the join of a group.
    fn answer(port: &mut VerbsPort, id: EndpointId, mgid: Gid, qkey: QKey) -> Joined {
        port.requested.add(mgid, id);
        let record = Joined::Now(GroupParameters::unadministered(qkey));
        let mut events = port.group_answered(mgid, &record);
        match events.pop() {
            Some(PortEvent::Group { joined, .. }) if events.is_empty() => joined,
            other => panic!("{other:?} {events:?}"),
        }
    }

    fn two_partitions() {
        let _ns = Namespace::loopback("qkey");
        let fake = Arc::new(Fake::default());
        fake.device().pkeys = vec![0xffff, 0x8001];
        fake.device().refuses_controlled = true;
        fake.queue().takes = usize::MAX;
        let mut port = VerbsPort::open_with(fake.clone(), VerbsConfig::new("fake", 1)).unwrap();
        port.usable.link_layer = LinkLayer::InfiniBand;
        let [first, other] = [0xffff, 0x8001].map(|pkey| {
            let init = UdInit {
                pkey: PKey::new(pkey),
                qkey: QKey::IPOIB_DEFAULT,
                qpn: None,
            };
            port.create_ud(init).unwrap().id
        });
        let [of_first, of_other] = ["ffff", "8001"].map(|pkey| {
            format!("ff12:401b:{pkey}::ffff:ffff")
                .parse::<Gid>()
                .unwrap()
        });
        let is_now = |joined: &Joined| matches!(joined, Joined::Now(_));
        assert!(is_now(&answer(
            &mut port,
            first,
            of_first,
            QKey::IPOIB_DEFAULT
        )));
        assert!(is_now(&answer(
            &mut port,
            other,
            of_other,
            QKey::IPOIB_DEFAULT
        )));

        let Joined::Refused(why) = answer(&mut port, other, of_other, CONTROLLED) else {
            panic!("the kernel refuses it");
        };
        assert!(why.contains("0x80000b1b is controlled"), "{why}");
        assert!(!port.groups.has_member(of_other, other));
        assert!(port.groups.has_member(of_first, first));
        assert_eq!(port.process(), []);

        fake.device().refuses_controlled = false;
        assert!(is_now(&answer(&mut port, other, of_other, CONTROLLED)));
        port.set_qkey(other, CONTROLLED).unwrap();
        // The endpoint has the key: nothing is to be checked any more.
        fake.device().refuses_controlled = true;
        assert!(is_now(&answer(&mut port, other, of_other, CONTROLLED)));
    }

    #[test]
    fn a_refused_q_key_stops_one_partition() {
        thread::spawn(two_partitions).join().unwrap();
    }
}
