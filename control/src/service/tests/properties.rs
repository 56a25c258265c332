//! Properties of all requests about children, partitions and settings.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::ask;
use crate::api::*;
use crate::service::Answer;

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Datagram), Just(Mode::Connected)]
}

fn child_add() -> impl Strategy<Value = ChildAddRequest> {
    let name = || option::of(any::<String>());
    let number = || option::of(any::<u32>());
    let own = (any::<String>(), any::<i64>(), name());
    (own, option::of(mode()), number(), number(), name()).prop_map(
        |((parent, pkey, name), mode, mtu, queues, netns)| ChildAddRequest {
            parent,
            pkey,
            name,
            mode,
            mtu,
            queues,
            netns,
        },
    )
}

fn request() -> impl Strategy<Value = (&'static str, Value, Request)> {
    fn entry<T: serde::Serialize + Clone>(
        method: &'static str,
        make: fn(T) -> Request,
    ) -> impl Fn(T) -> (&'static str, Value, Request) {
        move |parameters| {
            let value = serde_json::to_value(&parameters).unwrap();
            (method, value, make(parameters))
        }
    }
    let child_del = (any::<String>(), option::of(any::<i64>()))
        .prop_map(|(interface, pkey)| ChildDelRequest { interface, pkey });
    let keys = vec(any::<u16>().prop_map(proto::PKey::new), 0..8);
    let pkeys = (option::of(any::<String>()), option::of(keys))
        .prop_map(|(port, pkeys)| PkeysRequest { port, pkeys });
    let mtu = (any::<String>(), option::of(any::<u32>()))
        .prop_map(|(interface, mtu)| MtuRequest { interface, mtu });
    let umcast = (any::<String>(), option::of(any::<bool>()))
        .prop_map(|(interface, umcast)| UmcastRequest { interface, umcast });
    let number = || option::of(any::<u32>());
    let moderation =
        (any::<String>(), number(), number()).prop_map(|(interface, rx_usecs, rx_frames)| {
            ModerationRequest {
                interface,
                rx_usecs,
                rx_frames,
            }
        });
    prop_oneof![
        child_add().prop_map(entry("ChildAdd", Request::ChildAdd)),
        child_del.prop_map(entry("ChildDel", Request::ChildDel)),
        pkeys.prop_map(entry("Pkeys", Request::Pkeys)),
        mtu.prop_map(entry("Mtu", Request::Mtu)),
        umcast.prop_map(entry("Umcast", Request::Umcast)),
        moderation.prop_map(entry("Moderation", Request::Moderation)),
    ]
}

/// Any JSON value of limited depth.
fn parameter() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        vec(any::<i64>(), 0..4).prop_map(Value::from),
    ]
}

proptest! {
    #[test]
    fn what_a_client_encodes_is_what_the_daemon_is_asked(
        (method, parameters, request) in request()
    ) {
        let call = json!({"method": format!("{INTERFACE}.{method}"), "parameters": parameters});
        prop_assert_eq!(ask(&call.to_string()).1, [request]);
    }

    #[test]
    fn any_parameters_are_answered(
        method in prop::sample::select(
            &["ChildAdd", "ChildDel", "Children", "Pkeys", "Mtu", "Umcast", "Moderation"][..]
        ),
        (interface, pkey, other) in (parameter(), parameter(), parameter()),
        key in prop::sample::select(&["pkeys", "mtu", "netns", "rx_usecs", "queues", "x"][..]),
    ) {
        let first = if method == "ChildAdd" { "parent" } else { "interface" };
        let mut parameters = json!({first: interface, "pkey": pkey});
        parameters[key] = other;
        let call = json!({"method": format!("{INTERFACE}.{method}"), "parameters": parameters});
        let (answer, asked) = ask(&call.to_string());
        prop_assert!(matches!(answer, Answer::Reply(_)));
        prop_assert!(asked.len() <= 1);
    }
}
