//! `scripts/subnet-lab`: daemons over the software fabric keep to what OpenSM grants, on ports that ibsim simulates.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::lab::{Done, Presence, ibtapd};

/// Three hosts: two of them in `red`; one full and two limited members of `blue`.
const PARTITIONS: &str = "Default=0x7fff,ipoib,mtu=4:ALL=full;\n\
                          red=0x0001,ipoib,mtu=4:{1}=full,{2}=full;\n\
                          blue=0x0002,ipoib,mtu=4:{1}=full,{2}=limited,{3}=limited;\n";

/// An interface in each partition.
const CONFIG: &str = "[port.eth0]\nsa = \"umad\"\n\
                      [[ipoib]]\nname = \"ib0\"\nunderlay = \"eth0\"\n\
                      [[ipoib]]\nname = \"red\"\nunderlay = \"eth0\"\npkey = 0x8001\n\
                      [[ipoib]]\nname = \"blue\"\nunderlay = \"eth0\"\npkey = 0x8002\n";

/// Functions of all commands. Each check prints one line.
const FUNCTIONS: &str = r#"
on() { ip netns exec "$LAB-$1" "${@:2}"; }
# tell WHAT COMMAND...: whether the command succeeds.
tell() { if "${@:2}" >/dev/null 2>&1; then echo "$1: yes"; else echo "$1: no"; fi; }
# await WHAT COMMAND...: the command succeeds after a while.
await() {
    local end=$((SECONDS + 60))
    until "${@:2}" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "$1: no"; return; }
        sleep 0.2
    done
    echo "$1: yes"
}
reach() { on "$1" ping -c 1 -W "${3:-1}" "$2"; }
# A neighbour that must be found first, by multicast. Both hosts may have to ask OpenSM for paths, twice if it is busy.
reach_anew() { on "$1" ip neigh flush dev ib0; reach "$1" "$2" 5; }
carrier() { [ "$(on "$1" cat "/sys/class/net/$2/carrier")" = 1 ]; }
# begin_ping HOST ADDRESS: a ping that goes on without an end.
begin_ping() { on "$1" ping -n -i 0.2 "$2" >"$LAB_SCRATCH/ping" & }
answers() { grep -c 'bytes from' "$LAB_SCRATCH/ping"; }
has_more_than() { [ "$(answers)" -ge $(($1 + 5)) ]; }
ping_goes_on() { await "the ping goes on" has_more_than "$(answers)"; }
# has_members HOSTS: OpenSM knows that many hosts as members of the broadcast group. Its SM_Key is 1.
has_members() {
    local host
    for host in $(seq "$1"); do
        at 1 ibtap sa mcmember --sm-key 1 --mgid ff12:401b:ffff::ffff:ffff --gid "fe80::99:ff:fe00:${host}0" || return
    done
}
"#;

/// Runs a command in a lab. `None`, with a message, without root.
fn subnet_lab(options: &[&str], command: &str) -> Option<Done> {
    if !kit::is_root() {
        return None;
    }
    // Its hosts are no lab, but they disturb tests that run alone.
    let _presence = Presence::begin();
    let folder = ibtapd().parent().expect("a program is in a folder");
    let command = format!("{FUNCTIONS}{command}");
    // ibsim's preload makes folders in the working folder, and a killed program leaves them.
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let done = Done::of(
        Command::new("timeout")
            .args(["--kill-after=10", "240"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/subnet-lab"))
            .arg("--bin")
            .arg(folder)
            .args(options)
            .args(["--cmd", &command])
            .current_dir(scratch.path())
            .stdin(Stdio::null()),
    );
    assert_eq!(done.code, Some(0), "{done:?}");
    Some(done)
}

/// Whether the lab printed these answers, in this order, and no others.
fn assert_answers(done: &Done, expected: &[&str]) {
    let is_answer = |line: &&str| line.ends_with(": yes") || line.ends_with(": no");
    let answers: Vec<&str> = done.out.lines().filter(is_answer).collect();
    assert_eq!(answers, expected, "{}{}", done.out, done.err);
}

/// A lab of hosts with this partitions file and this configuration.
fn lab_with(nodes: &str, partitions: &str, config: &str, command: &str) -> Option<Done> {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let [partitions, config] =
        [("partitions", partitions), ("config", config)].map(|(name, text)| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("a scratch file");
            path.to_str().expect("an ASCII path").to_owned()
        });
    let files = ["--partitions", &partitions, "--config", &config];
    subnet_lab(&[&["--nodes", nodes], &files[..]].concat(), command)
}

#[test]
fn vnics_use_a_group_of_the_partitions_file() {
    let partitions = "Default=0x7fff,ipoib,mtu=4:\n\
                      mgid=ff12:5645:ffff:0:1::1,mtu=3,sl=1,Q_Key=0xb1b0001\n\
                      ALL=full;\n";
    let config = "[port.eth0]\nsa = \"umad\"\n\
                  [[vnic]]\nname = \"lan0\"\nunderlay = \"eth0\"\nvesw = 1\n";
    let command = r#"
        members_in() {
            at 1 ibtap sa mcmember --sm-key 1 --mgid ff12:5645:ffff:0:1::1 --json | grep -o "\"$1\": *$2\b" | wc -l
        }
        both_are_members() { [ "$(members_in sl 1)" = 2 ]; }
        mtu_is() { [ "$(on "$1" cat /sys/class/net/lan0/mtu)" = 981 ]; }
        for host in 1 2; do
            on $host ip address add 10.7.0.$host/24 dev lan0
            await "carrier of $host" carrier $host lan0
            await "MTU of $host" mtu_is $host
        done
        await "members in service level 1" both_are_members
        await "1 to 2" reach 1 10.7.0.2
        await "a full packet" on 1 ping -c 1 -W 5 -M do -s 953 10.7.0.2
    "#;
    let Some(done) = lab_with("2", partitions, config, command) else {
        return;
    };
    let expected = [
        "carrier of 1: yes",
        "MTU of 1: yes",
        "carrier of 2: yes",
        "MTU of 2: yes",
        "members in service level 1: yes",
        "1 to 2: yes",
        "a full packet: yes",
    ];
    assert_answers(&done, &expected);
}

#[test]
fn partitions_of_opensm_are_enforced_and_change() {
    let command = r#"
        for host in 1 2 3; do
            on $host ip address add 10.21.0.$host/24 dev red
            on $host ip address add 10.22.0.$host/24 dev blue
            on $host ip link set red up
            on $host ip link set blue up
        done
        await "red 1 to 2" reach 1 10.21.0.2
        await "blue, full 1 to limited 2" reach 1 10.22.0.2
        await "blue, full 1 to limited 3" reach 1 10.22.0.3
        tell "blue, limited 2 to limited 3" reach 2 10.22.0.3
        tell "red carrier of 3" carrier 3 red
        tell "red 1 to 3" reach 1 10.21.0.3
        sed -i 's/^red=.*/red=0x0001,ipoib,mtu=4:ALL=full;/' "$PARTITIONS"
        kill -HUP "$(opensm_pid 1)"
        await "red 1 to 3, now a member" reach 1 10.21.0.3
        sed -i '/^blue=/d' "$PARTITIONS"
        kill -HUP "$(opensm_pid 1)"
        has_no_blue() { ! carrier 2 blue && ! carrier 1 blue; }
        await "blue is gone" has_no_blue
        await "ib0 1 to 2" reach 1 10.9.0.2
    "#;
    let Some(done) = lab_with("3", PARTITIONS, CONFIG, command) else {
        return;
    };
    let expected = [
        "red 1 to 2: yes",
        "blue, full 1 to limited 2: yes",
        "blue, full 1 to limited 3: yes",
        "blue, limited 2 to limited 3: no",
        "red carrier of 3: no",
        "red 1 to 3: no",
        "red 1 to 3, now a member: yes",
        "blue is gone: yes",
        "ib0 1 to 2: yes",
    ];
    assert_answers(&done, &expected);
}

#[test]
fn traffic_outlives_opensm_and_its_next_start_knows_all_members_and_sets_another_mtu() {
    let command = r#"
        mtu_is() { [ "$(on "$1" cat /sys/class/net/ib0/mtu)" = "$2" ]; }
        await "all are members" has_members 3
        on 3 iperf3 -s -1 -D
        await "iperf3 1 to 3" on 1 iperf3 -c 10.9.0.3 -n 4M
        begin_ping 1 10.9.0.2
        opensm_kill 1
        sleep 4
        tell "carrier without OpenSM" carrier 1 ib0
        tell "1 to 3 without OpenSM" reach_anew 1 10.9.0.3
        ping_goes_on
        sed -i 's/mtu=4/mtu=3/' "$PARTITIONS"
        opensm_start 1
        await "all are members again" has_members 3
        for host in 1 2 3; do await "MTU of $host" mtu_is $host 1020; done
        await "1 to 3" reach_anew 1 10.9.0.3
        await "a full packet" on 1 ping -c 1 -W 5 -M do -s 992 10.9.0.3
        ping_goes_on
    "#;
    let Some(done) = subnet_lab(&["--nodes", "3"], command) else {
        return;
    };
    let expected = [
        "all are members: yes",
        "iperf3 1 to 3: yes",
        "carrier without OpenSM: yes",
        "1 to 3 without OpenSM: yes",
        "the ping goes on: yes",
        "all are members again: yes",
        "MTU of 1: yes",
        "MTU of 2: yes",
        "MTU of 3: yes",
        "1 to 3: yes",
        "a full packet: yes",
        "the ping goes on: yes",
    ];
    assert_answers(&done, &expected);
}

#[test]
fn a_standby_opensm_that_takes_over_is_followed_and_so_is_the_handover_back() {
    let command = r#"
        sm_lid_is() { ibtap --socket "$1" --json show | grep -q "\"sm_lid\": *$2,"; }
        followed() { # LID
            await "SM LID $1 of 1" sm_lid_is "$SOCKET1" "$1"
            await "SM LID $1 of 2" sm_lid_is "$SOCKET2" "$1"
            await "all are members" has_members 2
            tell "carrier" carrier 2 ib0
            await "2 to 1" reach_anew 2 10.9.0.1
            ping_goes_on
        }
        begin_ping 1 10.9.0.2
        followed 1
        opensm_kill 1
        followed 3
        opensm_start 1
        # A master notices another OpenSM when it sweeps. On a busy machine, the first sweep may miss it, and either
        # OpenSM may wait forever for a datagram that ibsim has lost.
        handed_over() {
            local try
            for try in 1 2 3; do
                kill -HUP "$(opensm_pid 2)"
                sleep 2
                ! sm_lid_is "$SOCKET1" 1 || return 0
            done
            opensm_kill 1
            opensm_kill 2
            opensm_start 1
            opensm_start 2
            return 1
        }
        await "handover" handed_over
        followed 1
    "#;
    let Some(done) = subnet_lab(&["--nodes", "2", "--standby"], command) else {
        return;
    };
    let mut expected = Vec::new();
    for (lid, before) in [(1, None), (3, None), (1, Some("handover"))] {
        expected.extend(before.map(|what| format!("{what}: yes")));
        expected.extend([1, 2].map(|host| format!("SM LID {lid} of {host}: yes")));
        expected.extend(
            ["all are members", "carrier", "2 to 1", "the ping goes on"]
                .map(|what| format!("{what}: yes")),
        );
    }
    assert_answers(
        &done,
        &expected.iter().map(String::as_str).collect::<Vec<_>>(),
    );
}

#[test]
fn c117_lids_that_opensm_changes_are_followed() {
    let command = r#"
        lid_is() { ibtap --socket "$1" --json show | grep -q "\"lid\": *$2,"; }
        path_leads_to() { at 1 ibtap sa path host1 host2 --json | grep -q "\"dlid\": *$1,"; }
        await "all are members" has_members 2
        tell "LID of 1" lid_is "$SOCKET1" 16
        tell "path" path_leads_to 32
        begin_ping 1 10.9.0.2
        opensm_kill 1
        sed -i 's/0x0010 0x0010/0x0050 0x0050/; s/0x0020 0x0020/0x0060 0x0060/' "$LAB_SCRATCH/guid2lid"
        opensm_start 1
        await "new LID of 1" lid_is "$SOCKET1" 80
        await "new LID of 2" lid_is "$SOCKET2" 96
        await "all are members again" has_members 2
        await "new path" path_leads_to 96
        tell "carrier" carrier 1 ib0
        await "1 to 2" reach_anew 1 10.9.0.2
        ping_goes_on
    "#;
    let Some(done) = subnet_lab(&["--nodes", "2"], command) else {
        return;
    };
    let expected = [
        "all are members: yes",
        "LID of 1: yes",
        "path: yes",
        "new LID of 1: yes",
        "new LID of 2: yes",
        "all are members again: yes",
        "new path: yes",
        "carrier: yes",
        "1 to 2: yes",
        "the ping goes on: yes",
    ];
    assert_answers(&done, &expected);
}

#[test]
fn eight_hosts_have_carriers() {
    // From the start of a daemon to the answer for its broadcast group, which has the MTU 2048.
    let command = r#"
        at_of() { date -d "$(grep -m 1 "$2" "$LAB_SCRATCH/$1.log" | cut -d ' ' -f 1)" +%s%3N; }
        for host in 1 2 3 4 5 6 7 8; do
            await "carrier of $host" carrier $host ib0
            echo "host $host: $(($(at_of $host "the link MTU is now 2044") - $(at_of $host "serving on"))) ms"
        done
        for host in 1 2 3 4 5 6 7 8; do
            socket=SOCKET$host
            ibtap --socket "${!socket}" --json stats ib0 | grep -oE '"sa_(requests|retries)": *[0-9]+'
        done | sort | uniq -c
    "#;
    let Some(done) = subnet_lab(&["--nodes", "8"], command) else {
        return;
    };
    let expected = [1, 2, 3, 4, 5, 6, 7, 8].map(|host| format!("carrier of {host}: yes"));
    assert_answers(&done, &expected.each_ref().map(String::as_str));
    let figures = done.out.lines().filter(|line| !line.ends_with(": yes"));
    println!(
        "time until the carrier, then requests with the number of hosts:\n{}",
        figures.collect::<Vec<_>>().join("\n")
    );
}
