use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn names() -> Pseudonyms {
    Pseudonyms::new("node7.example.com")
}

/// The first address in the text behind `label`.
fn behind<'a>(text: &'a str, label: &str) -> &'a str {
    let (_, rest) = text.split_once(label).expect("the label");
    rest.split_whitespace().next().expect("a word")
}

#[test]
fn what_is_no_address_stays() {
    for text in [
        "",
        "::",
        "rx_packets 10  tx 0x0b1b P_Key 0x8001 QPN 0x000048",
        "10:15:30.123 2026-11-25T10:15:30.123Z 6.1.0-25-amd64 v0.1.0",
        "ibtapd 0.1.0 (revision 0123456789ab)",
        "std::env vnic::port fabric::add dead beef add 12: 34:",
        "CapEff:\t000001ffffffffff",
        "127.0.0.1 ::1 0.0.0.0 255.255.255.0 224.0.0.251 ff02::1 ff12:401b:ffff::ffff:ffff",
        "ff:ff:ff:ff:ff:ff 01:00:5e:00:00:01 33:33:00:00:00:01",
        "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff",
        "fe80::1/64 fe80::/64 0xfe80000000000000",
        "/usr/lib/x86_64-linux-gnu/very/long/path/without/a/key/in/it/at/all",
        "ä ß € 日本",
    ] {
        assert_eq!(names().apply(text), text);
    }
}

#[test]
fn addresses_keep_their_form_and_what_carries_meaning() {
    let names = names();
    let new = |text: &str| {
        let new = names.apply(text);
        assert_ne!(new, text);
        assert_eq!(new, names.apply(text), "twice the same");
        new
    };
    let mac = new("3c:fd:fe:a1:b2:c3");
    assert!(mac.starts_with("3c:fd:fe:") && mac.len() == 17, "{mac}");
    let v4 = new("10.20.30.5/24");
    assert!(v4.starts_with("10.") && v4.ends_with(".5/24"), "{v4}");
    // One byte has a pseudonym, which may be the byte itself.
    let private = names.apply("192.168.30.0/24");
    assert!(
        private.starts_with("192.168.") && private.ends_with(".0/24"),
        "{private}"
    );
    let prefix = new("2001:db8:12:34::/64");
    assert!(prefix.ends_with("::/64"), "{prefix}");
    assert!(new("fd00:aaaa:bbbb::1").starts_with("fd"));
    let full = new("fe80:0000:0000:0000:1234:5678:9abc:def0");
    assert!(full.starts_with("fe80:0000:0000:0000:") && full.len() == 39);
    let link = new("80:00:00:48:fe:80:00:00:00:00:00:00:12:34:56:78:9a:bc:de:f0");
    assert!(link.starts_with("80:00:00:48:fe:80:00:00:00:00:00:00:"));
    assert_eq!(new("0002:c903:00fe:a1b2").len(), 19);
    assert_eq!(new("0x0002c90300fea1b2").len(), 18);
}

#[test]
fn every_spelling_is_found() {
    let names = names();
    let v4 = names.apply("10.20.30.40");
    for text in [
        "10.20.30.40:4791",
        "[10.20.30.40]:4791",
        "inet 10.20.30.40/24 brd",
        "peers=10.20.30.40,10.20.30.40",
        "\"10.20.30.40\"",
        "ends at 10.20.30.40.",
        "from 10.20.30.40: gone",
        "addr:10.20.30.40",
        "10.20.30.40:http",
    ] {
        assert_eq!(names.apply(text), text.replace("10.20.30.40", &v4));
    }
    let v6 = names.apply("fe80::aaaa:bbbb:cccc:dddd");
    for text in [
        "fe80::aaaa:bbbb:cccc:dddd%eth0",
        "[fe80::aaaa:bbbb:cccc:dddd]:4791",
        "fe80::aaaa:bbbb:cccc:dddd: no answer",
        "gid=\"fe80::aaaa:bbbb:cccc:dddd\"",
    ] {
        let expected = text.replace("fe80::aaaa:bbbb:cccc:dddd", &v6);
        assert_eq!(names.apply(text), expected);
    }
    assert_eq!(
        names.apply("node7 node7.example.com node77 node7-a mynode7 (node7)"),
        "host host node77 node7-a mynode7 (host)"
    );
}

#[test]
fn relations_stay_visible() {
    let text = names().apply(
        "mac=3c:fd:fe:a1:b2:c3 gid=fe80::3efd:feff:fea1:b2c3 group=ff02::1:ffa1:b2c3 \
         gmac=33:33:ff:a1:b2:c3 short=10.20.30.5 mapped=::ffff:10.20.30.5 same=10.20.30.9 \
         guid=0x3efdfefffea1b2c3 link=80:00:00:48:fe:80:00:00:00:00:00:00:3e:fd:fe:ff:fe:a1:b2:c3",
    );
    let tail = behind(&text, "mac=").replace("3c:fd:fe:", "");
    let digits = tail.replace(':', "");
    let (first, last) = digits.split_at(2);
    assert_eq!(behind(&text, "gmac="), format!("33:33:ff:{tail}"));
    assert_eq!(behind(&text, "guid="), format!("0x3efdfefffe{digits}"));
    assert!(behind(&text, "link=").ends_with(&format!(":3e:fd:fe:ff:fe:{tail}")));
    let v6 = |text: String| text.parse::<Ipv6Addr>().expect("an address");
    let gid = v6(behind(&text, "gid=").to_owned());
    assert_eq!(gid, v6(format!("fe80::3efd:feff:fe{first}:{last}")));
    let group = v6(behind(&text, " group=").to_owned());
    assert_eq!(group, v6(format!("ff02::1:ff{first}:{last}")));

    let short = behind(&text, "short=");
    assert_eq!(behind(&text, "mapped="), format!("::ffff:{short}"));
    let prefix = short.strip_suffix(".5").expect("the last byte stays");
    assert_eq!(behind(&text, "same="), format!("{prefix}.9"));
}

#[test]
fn another_report_has_other_pseudonyms() {
    let text = "2001:db8:1:2:3333:4444:5555:6666";
    assert_ne!(names().apply(text), names().apply(text));
}

#[test]
fn keys_are_removed_also_if_addresses_stay() {
    let wireguard = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=";
    let management = "0f".repeat(32);
    for names in [names(), Pseudonyms::none()] {
        for key in [wireguard, &management, &format!("0x{management}")] {
            for text in ["{}", "PrivateKey = {}", "psk={},", "alias \"{}\"", "({})"] {
                let expected = text.replace("{}", REMOVED);
                assert_eq!(names.apply(&text.replace("{}", key)), expected);
            }
        }
    }
    let text = "3c:fd:fe:a1:b2:c3 10.20.30.40 node7";
    assert_eq!(Pseudonyms::none().apply(text), text);
}

#[test]
fn different_addresses_have_different_pseudonyms() {
    let names = names();
    let all: BTreeSet<_> = (0..=0xffff_u64).map(|n| names.with_new_tail(n)).collect();
    assert_eq!(all.len(), 0x1_0000);
    let all: BTreeSet<_> = (0..=0xffff_u64)
        .map(|n| names.scramble('4', n << 4, 24, 8))
        .collect();
    assert_eq!(all.len(), 0x1_0000);
}

proptest! {
    #[test]
    fn no_text_is_too_strange(text in ".{0,80}", hex in "[0-9a-f:. /x]{0,80}") {
        names().apply(&text);
        names().apply(&hex);
    }

    #[test]
    fn prefixes_are_preserved(a in any::<u64>(), b in any::<u64>()) {
        let names = names();
        let common = |a: u64, b: u64| (a ^ b).leading_zeros();
        let (x, y) = (names.scramble('6', a, 64, 3), names.scramble('6', b, 64, 3));
        prop_assert_eq!(common(x, y), common(a, b));
        prop_assert_eq!(common(x, a).min(3), 3);
    }
}
