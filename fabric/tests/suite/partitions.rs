//! Partitions with a table that the provider may not be able to change. [`crate::soft`] tests changes
//! of the table.

use fabric::{FabricError, PKey, Sent};

use crate::exchange::train_arrives;
use crate::lab::{End, Family, Lab, pkeys, say};
use crate::node::{QKEY, payloads};

/// A P_Key that no table has by default.
const ABSENT: u16 = 0x8001;

#[test]
fn an_endpoint_whose_key_the_table_lacks_waits_for_it() {
    let lab = Lab::new();
    let (mut a, mut b) = lab.pair();
    assert!(!pkeys(&a).contains(&PKey::new(ABSENT)), "{:?}", pkeys(&a));
    let s = a.endpoint_in(ABSENT);
    assert_eq!((s.pkey, a.port.endpoint_pkey(s.id)), (None, None));
    assert_eq!(a.queue_pair(&s), ("RESET", ABSENT));
    let r = b.endpoint();
    let gid = b.gid();
    let one = payloads(0, 30, 30);
    assert_eq!(a.send(&s, gid, r.qpn, QKEY, &one), Sent::Failed);
    assert!(b.receive_for_a_while_from(&mut a).is_empty());
    // It receives nothing, either.
    let own = a.gid();
    let t = b.endpoint();
    b.send(&t, own, s.qpn, QKEY, &one);
    assert!(a.receive_for_a_while_from(&mut b).is_empty());
    train_arrives(&mut a, &mut b, &one);
    a.port.destroy_ud(s.id).unwrap();
}

#[test]
fn a_table_is_replaced_where_it_is_ours() {
    let lab = Lab::new();
    let mut a = lab.node(End::A, Family::V6);
    let waits = a.endpoint_in(ABSENT);
    let before = pkeys(&a);
    let settable = a.port.capabilities().pkeys_settable;
    let changed = a.port.set_pkeys(vec![PKey::DEFAULT, PKey::new(ABSENT)]);
    if settable {
        assert_eq!(changed.unwrap(), [waits.id]);
        assert_eq!(a.port.endpoint_pkey(waits.id), Some(PKey::new(ABSENT)));
    } else {
        say("this provider cannot change its P_Key table: only the refusal is tested");
        assert!(
            matches!(changed, Err(FabricError::Unusable(text)) if text.contains("subnet manager"))
        );
        assert_eq!((pkeys(&a), a.port.endpoint_pkey(waits.id)), (before, None));
    }
}

#[test]
fn peers_are_refused_without_a_list_of_peers() {
    let lab = Lab::new();
    let mut a = lab.node(End::A, Family::V6);
    assert!(a.port.capabilities().multicast);
    let refused = a.port.set_peers(vec!["fe80::2".parse().unwrap()]);
    assert!(matches!(refused, Err(FabricError::Unusable(_))));
    a.port.set_peers(vec![]).unwrap();
}
