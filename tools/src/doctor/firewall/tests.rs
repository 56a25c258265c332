//! Verdicts of recorded (tests/data/firewall) and small rulesets on a port's packets.

use std::net::IpAddr;

use super::rules::{Condition, Field, Step, Value};
use super::*;

const NFT: &str = include_str!("../../../../tests/data/firewall/nft-ruleset.json");
const IP6TABLES: &str = include_str!("../../../../tests/data/firewall/ip6tables-save.txt");

fn port(address: &str) -> PortAddress {
    let address: IpAddr = address.parse().unwrap();
    PortAddress {
        interface: "eth0".into(),
        address,
        user: 0,
        prefix_len: if address.is_ipv4() { 24 } else { 64 },
        broadcast: address
            .is_ipv6()
            .then(|| "ff12:401b:ffff::ffff:ffff".parse().unwrap()),
    }
}

fn nft(text: &str) -> Facts {
    Facts {
        nft: Some(Ok(text.to_owned())),
        ..Facts::default()
    }
}

/// A ruleset of one chain at the input hook of an inet table, with these rules' expressions.
fn input(policy: &str, rules: &[&str]) -> Facts {
    let rule = |(i, expr): (usize, &&str)| {
        format!(
            r#",{{"rule":{{"family":"inet","table":"t","chain":"in","handle":{i},"expr":{expr}}}}}"#
        )
    };
    let rules: String = rules.iter().enumerate().map(rule).collect();
    nft(&format!(
        r#"{{"nftables":[{{"chain":{{"family":"inet","table":"t","name":"in","handle":1,"type":"filter","hook":"input","prio":0,"policy":"{policy}"}}}}{rules}]}}"#
    ))
}

fn judged(facts: &Facts) -> Vec<Finding> {
    judge(facts, &[port("fe80::1")])
}

fn worst(facts: &Facts) -> Level {
    judged(facts).iter().map(|f| f.level).max().unwrap()
}

const ROCE: &str =
    r#"{"match":{"op":"==","left":{"payload":{"protocol":"udp","field":"dport"}},"right":4791}}"#;
const ICMPV6: &str =
    r#"{"match":{"op":"==","left":{"meta":{"key":"l4proto"}},"right":"ipv6-icmp"}}"#;
const ACCEPT: &str = r#"{"accept":null}"#;
const DROP: &str = r#"{"drop":null}"#;

#[test]
fn no_rules_let_everything_through() {
    let found = judged(&nft(r#"{"nftables":[{"metainfo":{}}]}"#));
    assert_eq!((found.len(), found[0].level), (1, Level::Ok));
}

#[test]
fn a_rule_that_drops_the_port_is_named_with_the_command_against_it() {
    let found = judged(&input("accept", &[&format!("[{ROCE},{DROP}]")]));
    assert_eq!(found.len(), 1, "one rule is reported once: {found:?}");
    assert_eq!(found[0].level, Level::Fail);
    assert!(found[0].found.contains("rule 0 of nft chain inet t in"));
    let advice = found[0].advice.as_ref().unwrap();
    let command = r#"nft 'insert rule inet t in iifname "eth0" udp dport 4791 accept'"#;
    assert!(advice.contains(command), "{advice}");
}

#[test]
fn a_policy_drops_what_no_rule_lets_in() {
    let facts = input("drop", &[&format!("[{ROCE},{ACCEPT}]")]);
    let found = judged(&facts);
    // All traffic needs neighbour discovery; snooping switches need MLD.
    let fails: Vec<_> = found.iter().filter(|f| f.level == Level::Fail).collect();
    assert_eq!(fails.len(), 1, "{found:?}");
    assert!(fails[0].found.contains("neighbour") && fails[0].found.contains("policy"));
    assert!(
        found
            .iter()
            .any(|f| f.level == Level::Warn && f.found.contains("MLD"))
    );
    let open = [
        &format!("[{ROCE},{ACCEPT}]")[..],
        &format!("[{ICMPV6},{ACCEPT}]"),
    ];
    assert_eq!(worst(&input("drop", &open)), Level::Ok);
    // IPv4 with peers needs neither.
    let found = judge(&facts, &[port("192.0.2.1")]);
    assert_eq!((found.len(), found[0].level), (1, Level::Ok), "{found:?}");
}

#[test]
fn established_is_not_enough() {
    let established = r#"[{"match":{"op":"in","left":{"ct":{"key":"state"}},"right":["established","related"]}},{"accept":null}]"#;
    let icmp = format!("[{ICMPV6},{ACCEPT}]");
    assert_eq!(worst(&input("drop", &[established, &icmp])), Level::Fail);
}

#[test]
fn other_interfaces_and_protocols_are_left_alone() {
    for rule in [
        r#"[{"match":{"op":"==","left":{"meta":{"key":"iifname"}},"right":"eth1"}},{"drop":null}]"#,
        r#"[{"match":{"op":"==","left":{"meta":{"key":"oifname"}},"right":"eth0"}},{"drop":null}]"#,
        r#"[{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":4791}},{"drop":null}]"#,
        r#"[{"match":{"op":"!=","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":22}},{"drop":null}]"#,
        r#"[{"match":{"op":"==","left":{"payload":{"protocol":"ip","field":"saddr"}},"right":{"prefix":{"addr":"0.0.0.0","len":0}}}},{"drop":null}]"#,
        r#"[{"match":{"op":"==","left":{"payload":{"protocol":"udp","field":"dport"}},"right":{"set":[53,{"range":[4792,5000]},{"elem":{"val":67}}]}}},{"drop":null}]"#,
        r#"[{"match":{"op":"<","left":{"payload":{"protocol":"udp","field":"dport"}},"right":1024}},{"drop":null}]"#,
        r#"[{"match":{"op":"==","left":{"tcp option":{}},"right":1}},{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"flags"}},"right":"syn"}},{"drop":null}]"#,
        r#"[{"counter":{"packets":1,"bytes":1}},{"log":null}]"#,
    ] {
        assert_eq!(worst(&input("accept", &[rule])), Level::Ok, "{rule}");
    }
}

#[test]
fn sets_ranges_and_comparisons_that_hold_the_port() {
    for right in [
        (r#""=="#, r#"{"set":[53,{"range":[4000,5000]}]}"#),
        (r#""=="#, r#"{"range":[4791,4791]}"#),
        (r#"">"#, "1023"),
        (r#"">="#, "4791"),
        (r#""<="#, "4791"),
        (r#""!="#, "53"),
    ] {
        let (op, value) = right;
        let rule = format!(
            r#"[{{"match":{{"op":{op}","left":{{"payload":{{"protocol":"udp","field":"dport"}}}},"right":{value}}}}},{{"drop":null}}]"#
        );
        assert_eq!(worst(&input("accept", &[&rule])), Level::Fail, "{rule}");
    }
}

/// A ruleset of one chain at the output hook.
fn output(rules: &[&str]) -> Facts {
    let facts = input("accept", rules);
    let text = facts.nft.unwrap().unwrap();
    nft(&text.replace("\"hook\":\"input\"", "\"hook\":\"output\""))
}

fn of_local_users(facts: &Facts) -> Vec<Level> {
    let findings = judge_local_users(facts, &[port("fe80::1")]);
    findings.iter().map(|f| f.level).collect()
}

/// The rule of docs/network.md lets the daemon's packets out, and no one else's.
#[test]
fn a_rule_against_local_users_is_recognized() {
    let user = |op: &str, right: &str| {
        let test = format!(
            r#"{{"match":{{"op":"{op}","left":{{"meta":{{"key":"skuid"}}}},"right":{right}}}}}"#
        );
        output(&[&format!(r#"[{ROCE},{test},{{"counter":{{}}}},{DROP}]"#)])
    };
    for good in [
        user("!=", "0"),
        user("!=", r#"{"set":[0,990]}"#),
        user(">", "0"),
    ] {
        assert_eq!(of_local_users(&good), [Level::Ok]);
        assert_eq!(worst(&good), Level::Ok);
    }
    for bad in [
        nft(r#"{"nftables":[]}"#),
        user("==", "1000"),
        user("==", r#""alice""#),
        output(&[&format!("[{ICMPV6},{DROP}]")]),
    ] {
        assert_eq!(of_local_users(&bad), [Level::Note]);
    }
    // The rule forgets the daemon's user.
    let mut of_ibtap = port("fe80::1");
    of_ibtap.user = 990;
    let found = judge(&user("!=", "0"), &[of_ibtap]);
    assert_eq!(found[0].level, Level::Fail);
    // Who cannot read the rules gets no advice.
    let unread = Facts {
        nft: Some(Err("Operation not permitted".into())),
        ..Facts::default()
    };
    assert_eq!(of_local_users(&unread), []);
    assert_eq!(of_local_users(&Facts::default()), []);
}

#[test]
fn a_rule_of_ip6tables_against_local_users_is_recognized() {
    let text = "*filter\n:OUTPUT ACCEPT [0:0]\n\
                -A OUTPUT -p udp -m udp --dport 4791 -m owner ! --uid-owner 0-10 -j DROP\nCOMMIT\n";
    let facts = Facts {
        xtables: vec![(Tool::Ip6tables, Ok(text.to_owned()))],
        ..Facts::default()
    };
    assert_eq!(of_local_users(&facts), [Level::Ok]);
    assert_eq!(worst(&facts), Level::Ok);
}

#[test]
fn unknown_rules_are_reported_and_not_guessed() {
    let fib = r#"{"match":{"op":"==","left":{"fib":{"result":"type"}},"right":"local"}}"#;
    let found = judged(&input("accept", &[&format!("[{fib},{DROP}]")]));
    let note = found.iter().find(|f| f.level == Level::Note).unwrap();
    assert!(note.found.contains("cannot judge") && note.found.contains("rule 0"));
    assert!(found.iter().all(|f| f.level < Level::Warn), "{found:?}");
    // A later drop is not certain either.
    let icmp = format!("[{ICMPV6},{ACCEPT}]");
    let found = judged(&input("drop", &[&format!("[{fib},{ACCEPT}]"), &icmp]));
    assert_eq!(found.iter().map(|f| f.level).max(), Some(Level::Warn));
    assert!(found[0].found.contains("unless rule 0"), "{found:?}");
    // A rule that only counts has no effect.
    let count = format!("[{fib},{{\"counter\":null}}]");
    assert_eq!(worst(&input("accept", &[&count])), Level::Ok);
}

/// An input chain of ip6tables with this policy and these rules, and a chain SUB. ICMPv6 is let in.
fn ip6tables(policy: &str, rules: &[&str]) -> Facts {
    let rules: String = rules.iter().map(|rule| format!("-A {rule}\n")).collect();
    let text = format!(
        "*filter\n:INPUT {policy} [0:0]\n:SUB - [0:0]\n-A INPUT -p ipv6-icmp -j ACCEPT\n{rules}COMMIT\n"
    );
    Facts {
        xtables: vec![(Tool::Ip6tables, Ok(text))],
        ..Facts::default()
    }
}

/// A packet that perhaps returns from a chain perhaps does not reach the chain's later rules.
#[test]
fn after_a_rule_that_perhaps_returns_nothing_in_the_chain_is_certain() {
    let perhaps = |chain: &str| format!("{chain} -m limit --limit 9/sec -j RETURN");
    let cases: [(&str, &[&str], Level); 8] = [
        ("ACCEPT", &["INPUT -j DROP"], Level::Note),
        ("DROP", &["INPUT -j ACCEPT"], Level::Warn),
        ("DROP", &["INPUT -j DROP"], Level::Fail),
        ("ACCEPT", &["INPUT -j ACCEPT"], Level::Ok),
        ("ACCEPT", &["INPUT -j RETURN", "INPUT -j DROP"], Level::Ok),
        ("DROP", &["INPUT -g SUB", "SUB -j ACCEPT"], Level::Warn),
        // The caller continues either way.
        ("ACCEPT", &["INPUT -j ACCEPT", "INPUT -j DROP"], Level::Ok),
        ("DROP", &["INPUT -j ACCEPT", "INPUT -j DROP"], Level::Warn),
    ];
    for (policy, rules, expected) in cases {
        let first = perhaps("INPUT");
        let all: Vec<&str> = [first.as_str()].iter().chain(rules).copied().collect();
        assert_eq!(
            worst(&ip6tables(policy, &all)),
            expected,
            "{policy}: {rules:?}"
        );
    }
    let first = perhaps("SUB");
    for (after, expected) in [("ACCEPT", Level::Note), ("DROP", Level::Fail)] {
        let after = format!("INPUT -j {after}");
        let rules = ["INPUT -j SUB", &after, &first, "SUB -j DROP"];
        assert_eq!(worst(&ip6tables("ACCEPT", &rules)), expected, "{after}");
    }
    // As a rule that perhaps returns: it perhaps goes to a chain, and not back.
    let goto = ["INPUT -m limit --limit 9/sec -g SUB", "INPUT -j DROP"];
    assert_eq!(worst(&ip6tables("ACCEPT", &goto)), Level::Note);
}

#[test]
fn the_hop_limit_of_ip6tables_is_known() {
    let rule = |test: &str, verdict: &str| format!("INPUT -m hl {test} -j {verdict}");
    let of = |rules: &[&str]| worst(&ip6tables("ACCEPT", rules));
    let icmp_only = |test: &str| {
        let text = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j ACCEPT\n\
                    -A INPUT -p ipv6-icmp -m hl TEST -j ACCEPT\nCOMMIT\n";
        worst(&Facts {
            xtables: vec![(Tool::Ip6tables, Ok(text.replace("TEST", test)))],
            ..Facts::default()
        })
    };
    assert_eq!(icmp_only("--hl-eq 255"), Level::Warn, "MLD has 1");
    assert_eq!(icmp_only("! --hl-eq 64"), Level::Ok);
    assert_eq!(icmp_only("--hl-eq 64"), Level::Fail);
    // The hop limit of RoCEv2 packets is the sender's choice.
    assert_eq!(of(&[&rule("--hl-lt 2", "DROP")]), Level::Note);
}

#[test]
fn an_empty_comment_of_iptables_hides_nothing() {
    let rule = |verdict: &str| format!("INPUT -m comment --comment \"\" -j {verdict}");
    assert_eq!(worst(&ip6tables("ACCEPT", &[&rule("DROP")])), Level::Fail);
    assert_eq!(worst(&ip6tables("DROP", &[&rule("ACCEPT")])), Level::Ok);
}

#[test]
fn a_limit_of_connections_is_a_condition() {
    let ssh =
        r#"{"match":{"op":"==","left":{"payload":{"protocol":"tcp","field":"dport"}},"right":22}}"#;
    let limit = r#"{"ct count":{"val":20,"inv":true}}"#;
    let ssh = format!("[{limit},{ssh},{DROP}]");
    assert_eq!(worst(&input("accept", &[&ssh])), Level::Ok);
    let roce = format!("[{ROCE},{DROP}]");
    assert_eq!(worst(&input("accept", &[&ssh, &roce])), Level::Fail);
    let limited = format!("[{limit},{ROCE},{DROP}]");
    assert_eq!(worst(&input("accept", &[&limited])), Level::Note);
}

#[test]
fn dormant_tables_have_no_effect() {
    let with = |facts: Facts, table: &str| {
        let text = facts.nft.unwrap().unwrap();
        let list = format!("\"nftables\":[{{\"table\":{table}}},");
        nft(&text.replace("\"nftables\":[", &list))
    };
    let user = r#"{"match":{"op":"!=","left":{"meta":{"key":"skuid"}},"right":0}}"#;
    let drops = || input("drop", &[&format!("[{ROCE},{DROP}]")]);
    let local_users = || output(&[&format!("[{ROCE},{user},{DROP}]")]);
    for dormant in [r#""dormant""#, r#"["owner","dormant"]"#] {
        let table = format!(r#"{{"family":"inet","name":"t","flags":{dormant}}}"#);
        assert_eq!(worst(&with(drops(), &table)), Level::Ok);
        assert_eq!(of_local_users(&with(local_users(), &table)), [Level::Note]);
    }
    for active in [
        r#"{"family":"inet","name":"t"}"#,
        r#"{"family":"inet","name":"t","flags":"owner"}"#,
        r#"{"family":"ip6","name":"t","flags":"dormant"}"#,
        r#"{"family":"inet","name":"u","flags":"dormant"}"#,
    ] {
        assert_eq!(worst(&with(drops(), active)), Level::Fail, "{active}");
        assert_eq!(of_local_users(&with(local_users(), active)), [Level::Ok]);
    }
}

#[test]
fn chains_that_jump_in_circles_end() {
    let text = r#"{"nftables":[
        {"chain":{"family":"ip6","table":"t","name":"a","hook":"input","prio":0,"policy":"accept","type":"filter"}},
        {"chain":{"family":"ip6","table":"t","name":"b"}},
        {"rule":{"family":"ip6","table":"t","chain":"a","handle":1,"expr":[{"jump":{"target":"b"}}]}},
        {"rule":{"family":"ip6","table":"t","chain":"b","handle":2,"expr":[{"goto":{"target":"b"}}]}},
        {"rule":{"family":"ip6","table":"t","chain":"b","handle":3,"expr":[{"jump":{"target":"none"}}]}}]}"#;
    assert!(worst(&nft(text)) <= Level::Note);
}

#[test]
fn the_ruleset_of_nft_is_read() {
    let chains = nft::parse(NFT).unwrap();
    let names: Vec<_> = chains.iter().map(|c| c.id.to_string()).collect();
    assert_eq!(
        names,
        [
            "nft chain inet filter services",
            "nft chain inet filter input",
            "nft chain inet filter output",
            "nft chain inet raw pre",
            "nft chain netdev early in",
        ]
    );
    let input = chains[1].base.as_ref().unwrap();
    assert!(input.drops && input.priority == 0);
    // Its device is lo, which nft 1.0.6 does not print.
    assert!(chains[4].base.as_ref().unwrap().devices.is_empty());
    let unknown = |c: &Chain| {
        let steps = c.rules.iter().flat_map(|r| &r.steps);
        steps
            .filter(|s| matches!(s, Step::Match(Condition::Unknown)))
            .count()
    };
    // limit and fib; the mark of a packet.
    assert_eq!(
        chains.iter().map(unknown).collect::<Vec<_>>(),
        [0, 2, 1, 0, 0]
    );
    // The elements of the set replace its name.
    let rdma = &chains[0].rules[1].steps[1];
    let expected = Step::Match(Condition::Is {
        field: Field::DestinationPort,
        values: vec![
            Value::Numbers(4700..=4790),
            Value::Numbers(4792..=4792),
            Value::Numbers(18515..=18515),
        ],
        negated: false,
    });
    assert_eq!(*rdma, expected);
}

#[test]
fn a_chain_of_a_device_is_for_that_device() {
    let of = |device: &str| {
        nft(&format!(
            r#"{{"nftables":[{{"chain":{{"family":"netdev","table":"t","name":"in","dev":{device},"hook":"ingress","prio":0,"policy":"drop","type":"filter"}}}}]}}"#
        ))
    };
    assert_eq!(worst(&of(r#""eth0""#)), Level::Fail);
    assert_eq!(worst(&of(r#"["eth1","eth0"]"#)), Level::Fail);
    assert_eq!(worst(&of(r#""eth1""#)), Level::Ok);
}

#[test]
fn the_ruleset_of_nft_is_judged() {
    let found = judged(&nft(NFT));
    let about = |words: &str| found.iter().find(|f| f.found.contains(words));
    // Port 4791 is not in the set; the rule with fib may let it in.
    let roce = about("RoCEv2 packets (UDP port 4791) are dropped on their way in").unwrap();
    assert_eq!(roce.level, Level::Warn);
    assert!(roce.found.contains("policy") && roce.found.contains("unless rule 16"));
    // The multicast copies are rejected on their way out, unicast is new and goes.
    let out = about("multicast RoCEv2 packets (UDP port 4791) are dropped on their way out");
    assert_eq!(out.unwrap().level, Level::Fail);
    assert!(
        out.unwrap()
            .advice
            .as_ref()
            .unwrap()
            .contains("oifname \"eth0\"")
    );
    assert!(about("MLD queries").is_some(), "{found:?}");
    let note = about("nft chain netdev early in").unwrap();
    assert_eq!(note.level, Level::Note, "perhaps for eth0");
    assert!(
        about("neighbour").is_none(),
        "hop limit 255 is let in: {found:?}"
    );
}

#[test]
fn the_rules_of_ip6tables_are_read_and_judged() {
    let facts = |text: &str| Facts {
        xtables: vec![(Tool::Ip6tables, Ok(text.to_owned()))],
        ..Facts::default()
    };
    let found = judged(&facts(IP6TABLES));
    let fails: Vec<_> = found.iter().filter(|f| f.level == Level::Fail).collect();
    // The rules accept solicitations and the ports, but not advertisements.
    assert_eq!(fails.len(), 1, "{found:?}");
    assert!(
        fails[0].found.contains("neighbour advertisements"),
        "{found:?}"
    );
    assert!(fails[0].found.contains("-A INPUT -p ipv6-icmp -j REJECT"));
    let advice = fails[0].advice.as_ref().unwrap();
    assert!(
        advice.contains(
            "ip6tables -t filter -I INPUT -i eth0 -p ipv6-icmp --icmpv6-type 136 -j ACCEPT"
        ),
        "{advice}"
    );
    assert!(
        found
            .iter()
            .any(|f| f.level == Level::Note && f.found.contains("hashlimit"))
    );
    let closed = IP6TABLES.replace("4000:4791", "4000:4790");
    let found = judged(&facts(&closed));
    let roce = found
        .iter()
        .find(|f| f.found.contains("UDP port 4791"))
        .unwrap();
    assert_eq!(roce.level, Level::Fail, "{found:?}");
}

#[test]
fn rules_that_iptables_keeps_in_nftables_are_judged_once() {
    // nft prints such a rule without its match.
    let seen_by_nft = r#"{"nftables":[
        {"chain":{"family":"ip6","table":"filter","name":"INPUT","hook":"input","prio":0,"policy":"drop","type":"filter"}},
        {"rule":{"family":"ip6","table":"filter","chain":"INPUT","handle":5,"expr":[{"xt":{"type":"match","name":"multiport"}},{"accept":null}]}}]}"#;
    let complete = "# Generated by ip6tables-save v1.8.9 (nf_tables)\n*filter\n:INPUT DROP [0:0]\n\
        -A INPUT -p udp -m multiport --dports 4791 -j ACCEPT\n-A INPUT -p ipv6-icmp -j ACCEPT\n";
    assert_eq!(worst(&nft(seen_by_nft)), Level::Warn, "not sure");
    let both = Facts {
        xtables: vec![(Tool::Ip6tables, Ok(complete.to_owned()))],
        ..nft(seen_by_nft)
    };
    assert_eq!(worst(&both), Level::Ok);
}

#[test]
fn a_missing_program_or_right_is_reported() {
    let none = Facts::default();
    assert_eq!(worst(&none), Level::Ok);
    let signs = Facts {
        signs: vec!["the kernel module nf_tables is loaded"],
        ..Facts::default()
    };
    let found = judged(&signs);
    assert_eq!(found[0].level, Level::Note);
    assert!(
        found[0]
            .advice
            .as_ref()
            .unwrap()
            .contains("install nftables")
    );
    let denied = Facts {
        nft: Some(Err("nft: Operation not permitted".into())),
        ..Facts::default()
    };
    let found = judged(&denied);
    assert!(
        found
            .iter()
            .any(|f| f.advice.as_ref().is_some_and(|a| a.contains("root")))
    );
    assert!(
        found.iter().all(|f| f.level == Level::Note),
        "rules that were not read let nothing through: {found:?}"
    );
}

#[test]
fn a_full_table_of_connections_is_reported() {
    let tracked = |count| Facts {
        tracked: Some((count, 1000)),
        ..nft(r#"{"nftables":[]}"#)
    };
    assert_eq!(worst(&tracked(100)), Level::Ok);
    assert_eq!(worst(&tracked(950)), Level::Warn);
}

#[test]
fn nonsense_is_no_panic() {
    for text in [
        "",
        "{}",
        "[]",
        "{\"nftables\":7}",
        "{\"nftables\":[7,{\"rule\":8},{\"chain\":{}}]}",
    ] {
        assert!(worst(&nft(text)) <= Level::Note, "{text}");
    }
    // A set that names itself.
    for element in [r#""@x""#, r#"{"elem":{"val":"@x"}}"#, r#"{"set":["@x"]}"#] {
        let rule = format!("[{},{DROP}]", ROCE.replace("4791", r#""@x""#));
        let text = input("accept", &[&rule]).nft.unwrap().unwrap();
        let set =
            format!(r#"{{"set":{{"family":"inet","table":"t","name":"x","elem":[{element}]}}}}"#);
        let text = text.replace("\"nftables\":[", &format!("\"nftables\":[{set},"));
        assert_eq!(worst(&nft(&text)), Level::Note, "{text}");
    }
    for text in [
        "*",
        ":",
        "-A",
        "-A X",
        "*f\n:I DROP\n-A I -p\n-A I ! -j\n-A I --dport x:y -j DROP\n-A I -m",
    ] {
        iptables::parse(text, Tool::Iptables);
    }
}

proptest::proptest! {
    #[test]
    fn no_text_of_iptables_is_a_panic(lines in proptest::collection::vec(
        "(\\*[a-z]{1,6}|:[A-Z]{1,6} (DROP|-)|-A (INPUT|[A-Z]{1,3})( (-[a-z]|--[a-z]{1,12}|!|\"|[0-9:/,.]{1,9}|[A-Z]{2,9})){0,8})", 0..12)) {
        let text = format!("*filter\n:INPUT DROP\n{}", lines.join("\n"));
        let facts = Facts {
            xtables: vec![(Tool::Ip6tables, Ok(text))],
            ..Facts::default()
        };
        judged(&facts);
    }

    #[test]
    fn a_rule_with_any_expression_of_another_is_no_panic(
        cut in 0..NFT.len(), paste in 0..NFT.len(), length in 0..200_usize,
    ) {
        // Text that is still JSON is judged; other text is refused.
        let mut text = NFT.as_bytes().to_vec();
        let piece = NFT.as_bytes()[paste..(paste + length).min(NFT.len())].to_vec();
        text.splice(cut..(cut + length).min(NFT.len()), piece);
        judged(&nft(&String::from_utf8_lossy(&text)));
    }

    #[test]
    fn an_accept_of_the_very_ports_is_never_a_drop(from in 0..=4791_u32, to in 4791..=65535_u32) {
        let rule = format!(
            r#"[{{"match":{{"op":"==","left":{{"payload":{{"protocol":"udp","field":"dport"}}}},"right":{{"range":[{from},{to}]}}}}}},{ACCEPT}]"#
        );
        let icmp = format!("[{ICMPV6},{ACCEPT}]");
        proptest::prop_assert_eq!(worst(&input("drop", &[&rule, &icmp])), Level::Ok);
        proptest::prop_assert_eq!(worst(&input("drop", &[&icmp])), Level::Fail);
    }
}
