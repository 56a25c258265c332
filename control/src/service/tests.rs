mod idl;
mod properties;
pub mod samples;

use std::collections::BTreeSet;

use super::*;
use crate::api::methods::{self, Method, StreamMethod};
use crate::api::{
    ChildAddRequest, ChildDelRequest, INTERFACE, Interface, Level, LogLevel, ModeRequest,
    ModerationRequest, MtuRequest, PingRequest, PkeysRequest, Selection, UmcastRequest,
    VersionInfo,
};
use idl::Idl;
use proto::Mode;

const STREAM: StreamId = StreamId(7);

const OWNER: Caller = Caller {
    uid: 0,
    pid: 1,
    may_change: true,
};

/// Answers like a daemon that serves only `ib0`.
#[derive(Default)]
struct Ib0 {
    asked: Vec<Request>,
    stream: std::collections::VecDeque<Reply>,
}

impl Handler for Ib0 {
    fn handle(&mut self, request: Request) -> Result<Reply, ApiError> {
        self.asked.push(request.clone());
        samples::reply(&request)
    }

    fn open(&mut self, stream: StreamId, request: Request) -> Result<(), ApiError> {
        assert_eq!(stream, STREAM);
        self.asked.push(request.clone());
        self.stream = samples::stream(&request).into();
        Ok(())
    }

    fn next(&mut self, stream: StreamId) -> Streamed {
        assert_eq!(stream, STREAM);
        match self.stream.pop_front() {
            None => Streamed::Nothing,
            Some(last) if self.stream.is_empty() => Streamed::Last(Ok(last)),
            Some(reply) => Streamed::Reply(reply),
        }
    }

    fn close(&mut self, _: StreamId) {}
}

fn ask(call: &str) -> (Answer, Vec<Request>) {
    let mut handler = Ib0::default();
    let answer = answer(call.as_bytes(), (STREAM, OWNER), &mut handler);
    (answer, handler.asked)
}

/// All replies of a stream.
fn streamed(method: &str, parameters: &Value) -> Vec<Value> {
    let mut handler = Ib0::default();
    let call = json!({
        "method": format!("{INTERFACE}.{method}"), "parameters": parameters, "more": true
    });
    let begun = answer(call.to_string().as_bytes(), (STREAM, OWNER), &mut handler);
    assert_eq!(begun, Answer::Stream, "{call}");
    let mut all = Vec::new();
    loop {
        let (reply, last) = next(STREAM, &mut handler).expect("a reply");
        all.push(json(Answer::Reply(reply)));
        if last {
            return all;
        }
    }
}

fn json(answer: Answer) -> Value {
    match answer {
        Answer::Reply(mut bytes) | Answer::Last(mut bytes) => {
            assert_eq!(bytes.pop(), Some(0), "a message ends with NUL");
            assert!(!bytes.contains(&0), "a message has one NUL");
            serde_json::from_slice(&bytes).unwrap()
        }
        Answer::Nothing | Answer::Stream => panic!("there is no answer"),
    }
}

fn reply(call: &str) -> Value {
    json(ask(call).0)
}

fn call(method: &str, parameters: Value) -> Value {
    reply(&json!({ "method": method, "parameters": parameters }).to_string())
}

#[test]
fn every_method_arrives_as_its_request() {
    let ib0 = || Interface {
        interface: "ib0".into(),
    };
    let one = Selection {
        interface: Some("ib0".into()),
    };
    let level = Level {
        level: LogLevel::Debug,
    };
    for (method, parameters, request) in [
        ("Version", json!({}), Request::Version),
        ("Show", json!({}), Request::Show(Selection::default())),
        (
            "Show",
            json!({"interface": null}),
            Request::Show(Selection::default()),
        ),
        (
            "Show",
            json!({"interface": "ib0"}),
            Request::Show(one.clone()),
        ),
        ("Stats", json!({"interface": "ib0"}), Request::Stats(one)),
        (
            "Neighbours",
            json!({"interface": "ib0"}),
            Request::Neighbours(ib0()),
        ),
        (
            "Guests",
            json!({"interface": "ib0"}),
            Request::Guests(ib0()),
        ),
        (
            "Groups",
            json!({"interface": "ib0"}),
            Request::Groups(ib0()),
        ),
        ("Paths", json!({"interface": "ib0"}), Request::Paths(ib0())),
        (
            "Connections",
            json!({}),
            Request::Connections(Selection::default()),
        ),
        (
            "Mode",
            json!({"interface": "ib0"}),
            Request::Mode(ModeRequest {
                interface: "ib0".into(),
                mode: None,
            }),
        ),
        (
            "Mode",
            json!({"interface": "ib0", "mode": "connected"}),
            Request::Mode(ModeRequest {
                interface: "ib0".into(),
                mode: Some(Mode::Connected),
            }),
        ),
        (
            "ChildAdd",
            json!({"parent": "ib0", "pkey": -1}),
            Request::ChildAdd(ChildAddRequest {
                parent: "ib0".into(),
                pkey: -1,
                name: None,
                mode: None,
                mtu: None,
                queues: None,
                netns: None,
            }),
        ),
        (
            "ChildDel",
            json!({"interface": "ib0.8001"}),
            Request::ChildDel(ChildDelRequest {
                interface: "ib0.8001".into(),
                pkey: None,
            }),
        ),
        (
            "Children",
            json!({}),
            Request::Children(Selection::default()),
        ),
        ("Pkeys", json!({}), Request::Pkeys(PkeysRequest::default())),
        (
            "Pkeys",
            json!({"port": "eth0", "pkeys": []}),
            Request::Pkeys(PkeysRequest {
                port: Some("eth0".into()),
                pkeys: Some(vec![]),
            }),
        ),
        (
            "Mtu",
            json!({"interface": "ib0"}),
            Request::Mtu(MtuRequest {
                interface: "ib0".into(),
                mtu: None,
            }),
        ),
        (
            "Umcast",
            json!({"interface": "ib0", "umcast": false}),
            Request::Umcast(UmcastRequest {
                interface: "ib0".into(),
                umcast: Some(false),
            }),
        ),
        (
            "Moderation",
            json!({"interface": "ib0", "rx_frames": 16}),
            Request::Moderation(ModerationRequest {
                interface: "ib0".into(),
                rx_usecs: None,
                rx_frames: Some(16),
            }),
        ),
        ("Resources", json!({}), Request::Resources),
        ("Ports", json!({}), Request::Ports),
        ("Metrics", json!({}), Request::Metrics),
        (
            "LogLevel",
            json!({"level": "debug"}),
            Request::LogLevel(level),
        ),
        ("Reload", json!({}), Request::Reload),
    ] {
        let method = format!("{INTERFACE}.{method}");
        let text = json!({ "method": method, "parameters": parameters }).to_string();
        assert_eq!(ask(&text).1, [request], "{text}");
    }
}

#[test]
fn parameters_may_be_left_out_where_none_is_needed() {
    let answer = reply(r#"{"method":"org.ibtap.Daemon.Version"}"#);
    assert_eq!(answer["parameters"]["product"], "ibtapd");
}

#[test]
fn faults_of_a_call_are_varlink_errors() {
    let invalid = |name: &str| {
        json!({
            "error": "org.varlink.service.InvalidParameter",
            "parameters": {"parameter": name}
        })
    };
    let daemon = |method: &str, parameters| call(&format!("{INTERFACE}.{method}"), parameters);
    assert_eq!(
        daemon("Show", json!({"interface": 1})),
        invalid("interface")
    );
    assert_eq!(daemon("Show", json!({"if": "ib0"})), invalid("if"));
    assert_eq!(daemon("Version", json!({"x": 1})), invalid("x"));
    assert_eq!(daemon("Groups", json!({})), invalid("interface"));
    assert_eq!(
        daemon("Mode", json!({"interface": "ib0", "mode": "unreliable"})),
        invalid("mode")
    );
    assert_eq!(
        daemon("LogLevel", json!({"level": "loud"})),
        invalid("level")
    );
    let child = |pkey: Value| json!({"parent": "ib0", "pkey": pkey});
    assert_eq!(daemon("ChildAdd", child("0x8001".into())), invalid("pkey"));
    assert_eq!(daemon("ChildAdd", child(1.5.into())), invalid("pkey"));
    assert_eq!(daemon("ChildAdd", child(Value::Null)), invalid("pkey"));
    assert_eq!(
        daemon("ChildAdd", json!({"pkey": 0x8001})),
        invalid("parent")
    );
    assert_eq!(
        daemon("Pkeys", json!({"port": "eth0", "pkeys": [0x10000]})),
        invalid("pkeys")
    );
    assert_eq!(
        daemon("Moderation", json!({"interface": "ib0", "rx_usecs": -1})),
        invalid("rx_usecs")
    );
    assert_eq!(
        reply(r#"{"method":"org.ibtap.Daemon.Version","upgrade":true}"#),
        invalid("upgrade")
    );
    assert_eq!(
        daemon("Destroy", json!({})),
        json!({
            "error": "org.varlink.service.MethodNotFound",
            "parameters": {"method": "org.ibtap.Daemon.Destroy"}
        })
    );
    assert_eq!(
        call("org.example.More.Show", json!({})),
        json!({
            "error": "org.varlink.service.InterfaceNotFound",
            "parameters": {"interface": "org.example.More"}
        })
    );
    assert_eq!(
        call("Show", json!({}))["error"],
        "org.varlink.service.MethodNotFound"
    );
}

#[test]
fn the_daemons_own_errors_have_names() {
    let answer = call(&format!("{INTERFACE}.Groups"), json!({"interface": "ib7"}));
    assert_eq!(
        answer,
        json!({
            "error": "org.ibtap.Daemon.NoSuchInterface",
            "parameters": {"interface": "ib7"}
        })
    );
    assert_eq!(
        json(busy(&Ib0::default()))["error"],
        "org.ibtap.Daemon.Busy"
    );
    let taken = json!({"parent": "ib0", "pkey": 0xffff});
    assert_eq!(
        call(&format!("{INTERFACE}.ChildAdd"), taken),
        json!({
            "error": "org.ibtap.Daemon.Errno",
            "parameters": {"errno": 76, "message": "ib0 has this P_Key itself"}
        })
    );
}

#[test]
fn a_refused_call_does_not_reach_the_daemon() {
    for text in [
        r#"{"method":"org.ibtap.Daemon.LogLevel","parameters":{"level":"debug","x":1}}"#,
        r#"{"method":"org.ibtap.Daemon.Version","upgrade":true}"#,
    ] {
        assert_eq!(ask(text).1, [], "{text}");
    }
}

#[test]
fn one_way_calls_are_done_and_not_answered() {
    let (answer, requests) = ask(
        r#"{"method":"org.ibtap.Daemon.LogLevel","parameters":{"level":"warn"},"oneway":true}"#,
    );
    assert_eq!(answer, Answer::Nothing);
    let level = LogLevel::Warn;
    assert_eq!(requests, [Request::LogLevel(Level { level })]);
    assert_eq!(ask(r#"{"method":"x.y","oneway":true}"#).0, Answer::Nothing);
}

#[test]
fn a_call_for_more_is_answered_once() {
    let answer = reply(r#"{"method":"org.ibtap.Daemon.Show","more":true}"#);
    assert!(answer.get("continues").is_none());
    assert_eq!(answer["parameters"]["interfaces"][0]["name"], "ib0");
}

#[test]
fn a_stream_continues_until_its_last_reply() {
    let parameters = json!({"interface": "ib0", "target": "all", "count": null});
    let replies = streamed("Ping", &parameters);
    let continues: Vec<_> = replies.iter().map(|r| r.get("continues")).collect();
    let yes = Value::Bool(true);
    assert_eq!(continues, [Some(&yes), Some(&yes), None]);
    assert_eq!(replies[2]["parameters"]["summary"]["sent"], 2);
    let (answer, asked) = ask(r#"{"method":"org.ibtap.Daemon.Ping","more":true,
            "parameters":{"interface":"ib0","target":"all","size":100}}"#);
    assert_eq!(answer, Answer::Stream);
    let request = PingRequest {
        interface: "ib0".into(),
        target: "all".into(),
        count: None,
        size: Some(100),
        interval_ms: None,
        timeout_ms: None,
    };
    assert_eq!(asked, [Request::Ping(request)]);
}

#[test]
fn clients_read_every_event_as_it_was_meant() {
    let request = Request::Monitor(Selection::default());
    let meant = samples::stream(&request);
    let replies = streamed("Monitor", &json!({}));
    assert_eq!(replies.len(), meant.len());
    for (reply, meant) in replies.iter().zip(meant) {
        let read: crate::api::Event =
            serde_json::from_value(reply["parameters"]["event"].clone()).unwrap();
        assert!(!read.what.to_string().is_empty());
        assert_eq!(Reply::Monitor { event: read }, meant);
    }
}

#[test]
fn a_stream_must_be_asked_for_more() {
    for method in ["Monitor", "Ping", "Manage"] {
        let parameters = json!({"interface": "ib0", "target": "all"});
        let parameters = match method {
            "Ping" => parameters,
            _ => json!({}),
        };
        let call = json!({"method": format!("{INTERFACE}.{method}"), "parameters": parameters});
        let (answer, asked) = ask(&call.to_string());
        assert_eq!(json(answer)["error"], "org.varlink.service.ExpectedMore");
        assert_eq!(asked, []);
        let mut oneway = call;
        oneway["more"] = true.into();
        oneway["oneway"] = true.into();
        let (answer, asked) = ask(&oneway.to_string());
        assert_eq!((answer, asked), (Answer::Nothing, vec![]));
    }
    let negative = json!({"interface": "ib0", "target": "all", "count": -1});
    assert_eq!(
        call(&format!("{INTERFACE}.Ping"), negative)["parameters"]["parameter"],
        "count"
    );
}

#[test]
fn garbage_is_answered_and_ends_the_connection() {
    let deep = "[".repeat(30_000);
    for text in [
        "",
        "x",
        "{}",
        "[]",
        "null",
        r#"{"method":1}"#,
        &deep,
        "\u{1}\u{7f}",
    ] {
        let (answer, requests) = ask(text);
        assert!(matches!(answer, Answer::Last(_)), "{text:.20}");
        assert_eq!(json(answer)["error"], "org.ibtap.Daemon.BadRequest");
        assert_eq!(requests, []);
    }
    assert!(matches!(
        super::answer(&[0xff, 0xfe], (STREAM, OWNER), &mut Ib0::default()),
        Answer::Last(_)
    ));
}

#[test]
fn the_service_introduces_itself() {
    let info = &call("org.varlink.service.GetInfo", json!({}))["parameters"];
    assert_eq!(info["interfaces"], json!([SERVICE, INTERFACE]));
    assert_eq!(info["product"], "ibtapd");
    let get = "org.varlink.service.GetInterfaceDescription";
    for name in [SERVICE, INTERFACE] {
        let answer = call(get, json!({"interface": name}));
        let text = answer["parameters"]["description"].as_str().unwrap();
        assert_eq!(Idl::parse(text).name, name);
    }
    let answer = call(get, json!({"interface": "org.example"}));
    assert_eq!(answer["error"], "org.varlink.service.InterfaceNotFound");
}

/// Description and code must agree: the code answers each method of the description, and each reply has the
/// types of the description.
#[test]
fn the_description_is_true() {
    let idl = Idl::parse(DESCRIPTION);
    let mut seen = BTreeSet::new();
    for (method, parameters) in samples::calls() {
        let answer = call(&format!("{INTERFACE}.{method}"), parameters.clone());
        let (takes, gives) = idl.method(method);
        idl.check(takes, &parameters).unwrap();
        idl.check(gives, &answer["parameters"]).unwrap();
        seen.insert(method);
    }
    for (method, parameters) in samples::stream_calls() {
        let (takes, gives) = idl.method(method);
        idl.check(takes, &parameters).unwrap();
        for reply in streamed(method, &parameters) {
            idl.check(gives, &reply["parameters"]).unwrap();
        }
        seen.insert(method);
    }
    let described: BTreeSet<_> = idl.methods().collect();
    assert_eq!(described, seen);

    for error in [
        "NoSuchInterface",
        "BadArgument",
        "Refused",
        "Errno",
        "Busy",
        "BadRequest",
    ] {
        assert!(idl.has_error(error), "{error}");
    }
}

/// Reads the answer of a method with one reply as a client does; returns the method's name.
fn read<P, R: serde::de::DeserializeOwned>(method: Method<P, R>) -> &'static str {
    let (_, parameters) = samples::calls()
        .into_iter()
        .find(|(name, _)| *name == method.name)
        .expect("a sample");
    let answer = call(&format!("{INTERFACE}.{}", method.name), parameters);
    let read = match method.member {
        Some(member) => &answer["parameters"][member],
        None => &answer["parameters"],
    };
    let read: Result<R, _> = serde_json::from_value(read.clone());
    assert!(read.is_ok(), "{answer}");
    method.name
}

/// Reads the replies of a method with a stream as a client does; returns the method's name.
fn read_stream<P, R: serde::de::DeserializeOwned>(method: StreamMethod<P, R>) -> &'static str {
    let (_, parameters) = samples::stream_calls()
        .into_iter()
        .find(|(name, _)| *name == method.name)
        .expect("a sample");
    for reply in streamed(method.name, &parameters) {
        let read: Result<R, _> = serde_json::from_value(reply["parameters"].clone());
        assert!(read.is_ok(), "{reply}");
    }
    method.name
}

#[test]
fn clients_have_every_method_and_read_its_answer() {
    let idl = Idl::parse(DESCRIPTION);
    let known = [
        read(methods::VERSION),
        read(methods::SHOW),
        read(methods::STATS),
        read(methods::NEIGHBOURS),
        read(methods::GUESTS),
        read(methods::GROUPS),
        read(methods::PATHS),
        read(methods::CONNECTIONS),
        read(methods::MODE),
        read(methods::CHILD_ADD),
        read(methods::CHILD_DEL),
        read(methods::CHILDREN),
        read(methods::PKEYS),
        read(methods::MTU),
        read(methods::UMCAST),
        read(methods::MODERATION),
        read(methods::RESOURCES),
        read(methods::PORTS),
        read(methods::METRICS),
        read(methods::LOG_LEVEL),
        read(methods::RELOAD),
        read(methods::VNICS),
        read(methods::VNIC_STATS),
        read(methods::VNIC_MACS),
        read(methods::VNIC_MEMBERS),
        read(methods::SEND_MANAGEMENT),
        read_stream(methods::MONITOR),
        read_stream(methods::PING),
        read_stream(methods::MANAGE),
    ];
    assert_eq!(idl.methods().collect::<BTreeSet<_>>(), known.into());
}

#[test]
fn the_description_describes_the_service_interface() {
    let idl = Idl::parse(SERVICE_DESCRIPTION);
    let info = call("org.varlink.service.GetInfo", json!({}));
    idl.check(idl.method("GetInfo").1, &info["parameters"])
        .unwrap();
}

/// The output of `--json` is an interface: keys are added, never changed.
#[test]
fn replies_as_they_have_always_been() {
    let mut text = String::new();
    for (method, parameters) in samples::calls() {
        let method = format!("{INTERFACE}.{method}");
        let call = json!({ "method": method, "parameters": parameters });
        let Answer::Reply(answer) = ask(&call.to_string()).0 else {
            panic!("{method} is not answered");
        };
        // Compare bytes, because the order of keys matters.
        let answer = String::from_utf8(answer).unwrap();
        let answer = answer.trim_end_matches('\0');
        text += &format!("{method} {answer}\n");
    }
    for (method, parameters) in samples::stream_calls() {
        let call = json!({
            "method": format!("{INTERFACE}.{method}"), "parameters": parameters, "more": true
        });
        let mut handler = Ib0::default();
        answer(call.to_string().as_bytes(), (STREAM, OWNER), &mut handler);
        while let Some((bytes, _)) = next(STREAM, &mut handler) {
            let reply = String::from_utf8(bytes).unwrap();
            text += &format!("{INTERFACE}.{method} {}\n", reply.trim_end_matches('\0'));
        }
    }
    let snapshot = include_str!("tests/replies.snap");
    if text != snapshot {
        let path = std::env::temp_dir().join(format!("replies.snap.{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        panic!(
            "the replies differ from tests/replies.snap; they are in {}",
            path.display()
        );
    }
}

#[test]
fn counters_keep_their_order() {
    let counters: crate::api::Counters = [("z", 1), ("a", 2), ("m", 3)].into_iter().collect();
    let text = serde_json::to_string(&counters).unwrap();
    assert_eq!(text, r#"{"z":1,"a":2,"m":3}"#);
    let back: crate::api::Counters = serde_json::from_str(&text).unwrap();
    assert_eq!(back, counters);
}

#[test]
fn link_layer_addresses_as_ip_prints_them() {
    let text = "00:00:00:4a:fe:80:00:00:00:00:00:00:00:02:c9:03:00:e7:7e:12";
    let address: crate::api::HardwareAddress = text.parse().unwrap();
    assert_eq!(address.to_string(), text);
    for bad in ["", "00:00", &format!("{text}:00"), &text.replace("4a", "4")] {
        assert!(bad.parse::<crate::api::HardwareAddress>().is_err(), "{bad}");
    }
}

#[test]
fn absent_is_not_null() {
    for (method, parameters) in samples::calls() {
        let answer = call(&format!("{INTERFACE}.{method}"), parameters);
        assert!(!answer.to_string().contains("null"), "{answer}");
    }
    let _: VersionInfo = serde_json::from_value(
        call(&format!("{INTERFACE}.Version"), json!({}))["parameters"].clone(),
    )
    .unwrap();
}

/// Before, every member of the socket's group could change the daemon.
#[test]
fn a_reader_changes_nothing_and_sends_nothing() {
    let reader = Caller {
        uid: 1000,
        pid: 2,
        may_change: false,
    };
    let asked = |method: &str, parameters: Value, caller| {
        let mut handler = Ib0::default();
        let call = json!({
            "method": format!("{INTERFACE}.{method}"), "parameters": parameters, "more": true
        });
        let call = call.to_string();
        let answer = answer(call.as_bytes(), (STREAM, caller), &mut handler);
        (answer, handler.asked.len())
    };
    let ib0 = json!({ "interface": "ib0" });
    let reads = [
        ("Show", json!({})),
        ("Mode", ib0.clone()),
        ("Mtu", ib0.clone()),
        ("Umcast", ib0.clone()),
        ("Moderation", ib0.clone()),
        ("Pkeys", json!({})),
        ("Monitor", json!({})),
    ];
    for (method, parameters) in reads {
        assert_eq!(asked(method, parameters, reader).1, 1, "{method}");
    }
    let others = [
        ("Mode", json!({ "interface": "ib0", "mode": "connected" })),
        ("Mtu", json!({ "interface": "ib0", "mtu": 2044 })),
        ("Umcast", json!({ "interface": "ib0", "umcast": true })),
        ("Moderation", json!({ "interface": "ib0", "rx_usecs": 1 })),
        ("Pkeys", json!({ "pkeys": [0x8001] })),
        ("Reload", json!({})),
        ("LogLevel", json!({ "level": "trace" })),
    ];
    for (method, parameters) in others {
        let (refused, count) = asked(method, parameters.clone(), reader);
        let text = json(refused).to_string();
        assert!(text.contains("user 1000 may only read"), "{method}: {text}");
        assert_eq!(count, 0, "{method}");
        assert_eq!(asked(method, parameters, OWNER).1, 1, "{method}");
    }
}
