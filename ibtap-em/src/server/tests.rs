use serde_json::json;

use super::*;
use crate::outbox::tests::FakeDisk;
use crate::runtime::tests::{Fake, candidate, counters};

const STREAM: StreamId = StreamId(7);

struct Rig {
    runtime: Runtime<Fake>,
    waiting: Waiting,
    disk: FakeDisk,
    caller: Caller,
}

impl Rig {
    fn new() -> Rig {
        Rig {
            runtime: Runtime::new(Fake::default(), candidate(1), vec![], 7),
            waiting: Waiting::default(),
            disk: FakeDisk::default(),
            caller: Caller {
                uid: 0,
                pid: 1,
                may_change: true,
            },
        }
    }

    fn served(&mut self) -> Served<'_, Fake> {
        Served {
            runtime: &mut self.runtime,
            waiting: &mut self.waiting,
            disk: &self.disk,
            now: Time(0),
            ibtapd: "/run/ibtap/ibtapd.sock".into(),
        }
    }

    fn call(&mut self, method: &str, parameters: Value) -> Result<Answered, Failure> {
        self.call_by(STREAM, method, parameters)
    }

    fn call_by(
        &mut self,
        stream: StreamId,
        method: &str,
        parameters: Value,
    ) -> Result<Answered, Failure> {
        let Value::Object(parameters) = parameters else {
            panic!("parameters are an object");
        };
        let caller = self.caller;
        self.served().call(MethodCall {
            method: method.into(),
            parameters,
            more: false,
            stream,
            caller,
        })
    }
}

/// Each method with parameters, and the member of its reply.
fn calls() -> Vec<(&'static str, Value, &'static str)> {
    let dst = "52:54:00:12:34:56";
    vec![
        ("Status", json!({}), "status"),
        ("Vesws", json!({"vesw": "storage"}), "vesws"),
        ("Ports", json!({"vesw": null}), "ports"),
        ("Macs", json!({}), "macs"),
        (
            "Explain",
            json!({"vesw": "2", "dst": dst, "vid": 5, "pcp": 3}),
            "explanation",
        ),
        (
            "Drain",
            json!({"target": "node1:1:0", "undo": true}),
            "drain",
        ),
    ]
}

#[test]
fn methods_are_answered_and_described() {
    let mut keys = std::collections::BTreeSet::new();
    for (method, parameters, member) in calls() {
        let Ok(Answered::Reply(body)) = Rig::new().call(method, parameters) else {
            panic!("{method} is not answered");
        };
        let reply: Value = serde_json::from_str(body.as_str()).unwrap();
        assert_eq!(
            reply.as_object().unwrap().keys().collect::<Vec<_>>(),
            [member]
        );
        assert!(
            DESCRIPTION.contains(&format!("method {method}(")),
            "{method}"
        );
        // The client can read what the server writes.
        let _: Reply = serde_json::from_value(reply.clone()).unwrap();
        let objects = match &reply[member] {
            Value::Array(all) => all.clone(),
            one => vec![one.clone()],
        };
        for object in objects {
            keys.extend(object.as_object().unwrap().keys().cloned());
            for group in object["groups"].as_array().into_iter().flatten() {
                keys.extend(group.as_object().unwrap().keys().cloned());
            }
        }
    }
    let counters = serde_json::to_value(counters()).unwrap();
    keys.extend(counters.as_object().unwrap().keys().cloned());
    for key in keys {
        assert!(
            DESCRIPTION.contains(&format!(" {key}: ")),
            "{key} is not described"
        );
    }
}

#[test]
fn roles_and_conditions_are_described_by_their_names() {
    use crate::api::{MacOrigin, PortCondition, Role};
    for role in [
        Role::Detached,
        Role::Listening,
        Role::Standby,
        Role::Claiming,
        Role::Active,
    ] {
        assert!(DESCRIPTION.contains(&role.to_string()));
    }
    for condition in [
        PortCondition::Unassigned,
        PortCondition::Pending,
        PortCondition::Down,
        PortCondition::Forwarding,
        PortCondition::Drained,
        PortCondition::Away,
        PortCondition::Refused,
    ] {
        assert!(DESCRIPTION.contains(&condition.to_string()));
    }
    for origin in [
        MacOrigin::Base,
        MacOrigin::Reported,
        MacOrigin::Static,
        MacOrigin::Group,
    ] {
        assert!(DESCRIPTION.contains(&origin.to_string()));
    }
}

#[test]
fn counters_are_answered_when_agents_have() {
    let mut rig = Rig::new();
    let asked = rig.call("Counters", json!({"port": "node*:1:0"}));
    assert_eq!(asked, Ok(Answered::Later));
    assert_eq!(rig.served().next(STREAM), Ok(None));
    rig.runtime.engine.answers = Some(vec![counters()]);
    let (body, last) = rig.served().next(STREAM).unwrap().expect("a reply");
    assert!(last && body.as_str().contains("tx_packets"));
    assert!(rig.waiting.is_empty());
    // The request is complete: the server does not close it.
    assert_eq!(rig.served().next(STREAM), Ok(None));
    assert_eq!(rig.runtime.engine.forgotten, 0);
}

#[test]
fn a_drain_is_on_the_disk_before_it_is_reported() {
    let mut rig = Rig::new();
    let target = json!({"target": "node1:1:0"});
    assert!(rig.call("Drain", target.clone()).is_ok());
    assert_eq!(
        (rig.disk.kept.get(), rig.runtime.engine.unsaved),
        (1, false)
    );
    rig.disk.full = true;
    let error = rig.call("Drain", target.clone()).unwrap_err();
    let message = "done, but a restart of the manager undoes it: no space left";
    let refused = Failure::new(INTERFACE, "Refused", json!({"message": message}));
    assert_eq!(error, refused);
    rig.disk.full = false;
    assert!(rig.call("Drain", target).is_ok());
}

#[test]
fn a_client_that_may_only_read_drains_nothing() {
    let mut rig = Rig::new();
    rig.caller = Caller {
        uid: 1001,
        pid: 7,
        may_change: false,
    };
    let error = rig.call("Drain", json!({"target": "node1:1:0"}));
    let message = "user 1001 may only read; use root or the user of ibtap-em";
    let refused = Failure::new(INTERFACE, "Refused", json!({"message": message}));
    assert_eq!(error, Err(refused));
    assert_eq!(rig.disk.kept.get(), 0);
    assert!(rig.call("Status", json!({})).is_ok());
}

#[test]
fn who_goes_is_not_waited_for_and_not_too_many_wait() {
    let mut rig = Rig::new();
    for client in 0..INQUIRIES_MAX as u64 {
        let asked = rig.call_by(StreamId(client), "Counters", json!({}));
        assert_eq!(asked, Ok(Answered::Later));
    }
    let refused = rig
        .call_by(StreamId(99), "Counters", json!({}))
        .unwrap_err();
    assert_eq!(refused, Failure::new(INTERFACE, "Busy", json!({})));
    rig.served().close(StreamId(0));
    rig.served().close(StreamId(99));
    assert_eq!(rig.runtime.engine.forgotten, 1);
    assert!(rig.call_by(StreamId(99), "Counters", json!({})).is_ok());
}

#[test]
fn what_is_wrong_with_a_call_is_said_in_varlinks_words() {
    let mac = "52:54:00:12:34:56";
    for (method, parameters, named) in [
        ("Vesws", json!({"vsw": "x"}), "vsw"),
        ("Vesws", json!({"vesw": 3}), "vesw"),
        ("Status", json!({"x": 1}), "x"),
        ("Explain", json!({"vesw": "2"}), "dst"),
        ("Explain", json!({"vesw": "2", "dst": "52:54"}), "dst"),
        (
            "Explain",
            json!({"vesw": "2", "dst": mac, "pcp": 300}),
            "pcp",
        ),
        ("Drain", json!({}), "target"),
    ] {
        let error = Rig::new().call(method, parameters.clone()).unwrap_err();
        assert_eq!(error, Failure::invalid(named), "{method} {parameters}");
    }
    let error = Rig::new().call("Frob", json!({})).unwrap_err();
    let full = format!("{INTERFACE}.Frob");
    assert_eq!(error, Failure::unknown_method(&full));
    let error = Rig::new()
        .call("Vesws", json!({"vesw": "lan"}))
        .unwrap_err();
    let message = "no switch \"lan\"";
    assert_eq!(
        error,
        Failure::new(INTERFACE, "BadArgument", json!({"message": message}))
    );
}
