//! `ibtap sa` with the real OpenSM, on ports that ibsim simulates, beside saquery.
//!
//! ibsim delivers the first 168 bytes of a table, so each question has at most three records.

use std::fs;

use serde_json::Value;

use crate::lab::{Done, Running, SOON, Subnet, eventually, ibtap};

const PARTITIONS: &str = "Default=0x7fff,ipoib,mtu=4:ALL=full;\nred=0x0001,ipoib,mtu=4:ALL=full;\n";

/// Fields that saquery prints as one number, or that are always zero.
const OTHERWISE: [&str; 3] = ["reserved.", "hop_flow_raw.", "resv2."];

fn sa(subnet: &Subnet, words: &str) -> Done {
    subnet.run("H2", &format!("{} sa {words}", ibtap().display()))
}

/// What it prints, of a question that has an answer.
fn answer(subnet: &Subnet, words: &str) -> String {
    let done = sa(subnet, words);
    assert_eq!(done.code, Some(0), "{words}:\n{}{}", done.out, done.err);
    done.out
}

fn objects(subnet: &Subnet, words: &str) -> Vec<Value> {
    let text = answer(subnet, &format!("{words} --json"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words}: {e}: {text}"))
}

/// Each line of saquery, in its order, is the begin of a line of ours: ours explain numbers.
fn assert_has_the_lines_of(ours: &str, saquery: &str) {
    let (ours, saquery) = (ours.to_lowercase(), saquery.to_lowercase());
    let mut lines = ours.lines().map(str::trim);
    for line in saquery.lines().map(str::trim) {
        // saquery has kinds of dumps of one attribute: "MCMemberRecord group dump:".
        if line.ends_with("dump:") || OTHERWISE.iter().any(|field| line.starts_with(field)) {
            continue;
        }
        assert!(
            lines.any(|our| our.starts_with(line)),
            "no {line:?} in its place of\n{ours}\nsaquery has\n{saquery}"
        );
    }
}

#[test]
fn answers_are_those_of_saquery() {
    let Some(subnet) = Subnet::managed(PARTITIONS) else {
        return;
    };
    let node = |name: &str| {
        let nodes = objects(&subnet, &format!("node --name {name}"));
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        nodes.into_iter().next().expect("one node")
    };
    let lids = ["H1", "H2", "H3"].map(|name| node(name)["lid"].as_u64().expect("a LID"));
    let [h1, h2, h3] = lids;
    for (ours, saquery) in [
        ("mcmember".to_owned(), "-g".to_owned()),
        (
            format!("path {h1} {h3}"),
            format!("PR --src-to-dst {h1}:{h3}"),
        ),
        (format!("node --lid {h2}"), format!("NR {h2}")),
    ] {
        let expected = subnet.ok("H2", &format!("saquery {saquery}"));
        assert!(expected.lines().count() > 5, "{expected}");
        assert_has_the_lines_of(&answer(&subnet, &ours), &expected);
    }
    let (ours, theirs) = (answer(&subnet, "sminfo"), subnet.ok("H2", "sminfo"));
    // The count of the manager's activity goes on.
    let before = theirs.split(" activity").next().expect("one piece");
    assert!(ours.starts_with(before), "{ours}{theirs}");
    assert!(
        ours.contains("SMINFO_MASTER") && ours.contains("node H1"),
        "{ours}"
    );
}

#[test]
fn questions_have_filters_and_json() {
    let Some(subnet) = Subnet::managed(PARTITIONS) else {
        return;
    };
    let red = "ff12:401b:8001::ffff:ffff";
    for words in [
        "mcmember --pkey 0x8001".to_owned(),
        format!("mcmember --mgid {red}"),
        "--device ibsim0 --port 1 mcmember --lid 0xc001".to_owned(),
    ] {
        let groups = objects(&subnet, &words);
        assert_eq!(groups.len(), 1, "{words}: {groups:?}");
        assert_eq!(groups[0]["mgid"], red, "{words}");
        assert_eq!(
            (&groups[0]["mtu"], &groups[0]["pkey"]),
            (&2048.into(), &0x8001.into())
        );
    }
    let h3 = objects(&subnet, "node --name H3").remove(0);
    let guid = h3["port_guid"].as_str().expect("text");
    let same = objects(&subnet, &format!("node --guid {guid}"));
    assert_eq!(same, std::slice::from_ref(&h3));
    assert_eq!((&h3["node_type"], &h3["ports"]), (&"CA".into(), &1.into()));

    // By name, by LID and by GID: the same path.
    let path = objects(&subnet, "path H2 H3 --pkey 0xffff");
    assert_eq!(path.len(), 1, "{path:?}");
    assert_eq!(path[0]["dlid"], h3["lid"]);
    let [sgid, dgid] = ["sgid", "dgid"].map(|end| path[0][end].as_str().expect("a GID"));
    for words in [
        format!("path {} {} --pkey 0x7fff", path[0]["slid"], path[0]["dlid"]),
        format!("path --from {sgid} --to {dgid} --pkey 0xffff"),
    ] {
        let same = objects(&subnet, &words);
        assert_eq!(same.len(), 1, "{words}");
        assert_eq!(same[0]["dlid"], path[0]["dlid"], "{words}");
    }

    let shown = objects(&subnet, "sminfo").remove(0);
    assert_eq!(
        (&shown["node"], &shown["state"]),
        (&"H1".into(), &"SMINFO_MASTER".into())
    );

    // Nothing is an empty answer with a status of its own.
    for words in ["service", "node --lid 77", "mcmember --pkey 0x8007"] {
        let done = sa(&subnet, &format!("{words} --json"));
        assert_eq!(
            (done.code, &*done.out),
            (Some(1), "[]\n"),
            "{words}: {}",
            done.err
        );
        assert!(done.err.contains("no such record"), "{}", done.err);
    }
    // A table that ibsim cuts is announced.
    let nodes = sa(&subnet, "node");
    assert_eq!(nodes.code, Some(0));
    assert!(
        nodes.err.contains("records may be missing"),
        "{}",
        nodes.err
    );
}

/// Whether the administrator has a subscription.
fn is_subscribed(subnet: &Subnet) -> bool {
    subnet.ok("H2", "saquery -I").contains("SubscriberGID")
}

/// `ibtap sa inform` on `H4`, with its output in the file `inform.out`.
fn informed(subnet: &Subnet) -> Running {
    let words = format!("{} sa inform --json", ibtap().display());
    let inform = subnet.spawn("H4", &words, "inform.out");
    eventually(SOON, "a subscription", || {
        is_subscribed(subnet).then_some(())
    });
    inform
}

/// A restarted administrator has no subscriptions; it refuses to end them.
#[test]
fn subscriptions_that_are_gone_end_without_a_fault() {
    let Some(mut subnet) = Subnet::managed(PARTITIONS) else {
        return;
    };
    let mut inform = informed(&subnet);
    subnet.abandon();
    subnet.manage(PARTITIONS);
    assert!(!is_subscribed(&subnet));
    assert_eq!(inform.interrupt(), Some(0));
}

#[test]
fn reports_arrive_until_the_subscriptions_end() {
    let Some(mut subnet) = Subnet::managed(PARTITIONS) else {
        return;
    };
    let guid = objects(&subnet, "node --name H3").remove(0)["port_guid"].clone();
    let guid = guid.as_str().expect("text").trim_start_matches("0x");
    let guid = u64::from_str_radix(guid, 16).expect("a number");
    let gid = std::net::Ipv6Addr::from(u128::from(0xfe80u64) << 112 | u128::from(guid)).to_string();

    let mut inform = informed(&subnet);
    subnet.console("Unlink \"H3\"");
    let report = eventually(SOON, "a Report of H3", || {
        let text = fs::read_to_string(subnet.file("inform.out")).expect("its output");
        let mut lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|report| report["trap"] == 65 && report["gid"] == *gid)
    });
    let what = report["what"].as_str().expect("a sentence");
    assert_eq!(what, format!("port {gid} went out of service"));
    assert_eq!(inform.interrupt(), Some(0));
    eventually(SOON, "the end of the subscriptions", || {
        (!is_subscribed(&subnet)).then_some(())
    });
}

#[test]
fn faults_of_the_subnet_have_sentences() {
    let Some(mut subnet) = Subnet::unmanaged() else {
        return;
    };
    let faulty = |subnet: &Subnet, words: &str, code: i32, sentence: &str| {
        let done = sa(subnet, words);
        assert_eq!(done.code, Some(code), "{words}: {}{}", done.out, done.err);
        assert!(done.err.contains(sentence), "{words}: {}", done.err);
    };
    faulty(
        &subnet,
        "node",
        3,
        "ibsim0/1 has no subnet manager: its state is INIT",
    );
    faulty(
        &subnet,
        "node --device mlx9_9",
        2,
        "there is no RDMA device mlx9_9",
    );
    faulty(
        &subnet,
        "node --device ibsim0 --port 2",
        2,
        "ibsim0/2 has no management datagrams",
    );
    subnet.manage(PARTITIONS);
    faulty(&subnet, "path H2 H9", 1, "no node is called \"H9\"");
    subnet.abandon();
    faulty(
        &subnet,
        "-W 0.1 node",
        3,
        "the subnet administrator does not answer",
    );
}
