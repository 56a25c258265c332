use std::io;

use proptest::prelude::*;

use super::disk::Step;
use super::*;

/// A state with this number of ports.
pub(crate) fn sample(ports: u8) -> State {
    let mut state = State {
        manager: 0xdead_beef_0000_0001,
        ..State::default()
    };
    for index in 0..ports {
        let key = PortKey {
            guid: 0x0002_c9ff_fe00_0001,
            port: 1,
            index,
        };
        state.members.insert(
            key,
            Member {
                vesw: 2,
                lid: Lid::new(0x100 + u32::from(index)),
                mac: [2, 0, 0, 0, 1, index],
                port_num: u32::from(index) + 1,
                description: "node \"é\"".into(),
                interface: "vnic0".into(),
                gid: "fe80::1".parse().unwrap(),
                qpn: Qpn::new(0x12 + u32::from(index)),
                payload_max: 4096,
                gone: index % 3 == 0,
                drained: index % 2 == 0,
            },
        );
    }
    state.drained.insert(7);
    let contested = SwitchMac {
        vesw: 2,
        mac: [0x52, 0x54, 0, 0, 0, 9],
    };
    state
        .contested
        .insert(contested, "0x1:2:3".parse().unwrap());
    state.quarantined.insert(
        Lid::new(0xabc),
        PortKey {
            guid: 1,
            port: 2,
            index: 3,
        },
    );
    state
}

fn open(path: &std::path::Path) -> Result<Opened, StateError> {
    Store::open(path, 99)
}

#[test]
fn a_state_comes_back_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let opened = open(directory.path()).unwrap();
    assert!(opened.new);
    assert_eq!(opened.state.manager, 99);
    opened.store.save(&sample(200)).unwrap();
    drop(opened);
    let opened = open(directory.path()).unwrap();
    assert!(!opened.new);
    assert_eq!(opened.state, sample(200));
}

#[test]
fn an_end_at_any_step_leaves_the_former_state_or_the_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (sample(30), sample(60));
    let mut seen = Vec::new();
    for last in 0.. {
        let store = open(directory.path()).unwrap().store;
        store.save(&old).unwrap();
        let mut steps = Vec::new();
        let ended = store.save_by(&new, &mut |step| {
            if steps.len() == last {
                return Err(io::Error::other("the power fails"));
            }
            steps.push(step);
            Ok(())
        });
        drop(store);
        let found = open(directory.path()).unwrap().state;
        let replaced = steps.contains(&Step::Rename);
        assert_eq!(
            found,
            if replaced { new.clone() } else { old.clone() },
            "after {steps:?}"
        );
        seen = steps;
        if ended.is_ok() {
            break;
        }
    }
    assert!(seen.iter().filter(|s| matches!(s, Step::Write(_))).count() > 2);
    assert_eq!(seen.last(), Some(&Step::SyncDirectory));
    let sync = seen.iter().position(|s| *s == Step::Sync);
    assert!(
        sync < seen.iter().position(|s| *s == Step::Rename),
        "{seen:?}"
    );
}

#[test]
fn a_state_of_before_there_was_something_is_read() {
    let mut former = sample(2);
    former.contested.clear();
    let text = String::from_utf8(former.encode().unwrap()).unwrap();
    let (_, json) = text.split_once('\n').unwrap();
    let mut value: serde_json::Value = serde_json::from_str(json).unwrap();
    value.as_object_mut().unwrap().remove("contested").unwrap();
    let json = value.to_string();
    let sum = crc32fast::hash(json.as_bytes());
    let file = format!("ibtap-em state 1 {} {sum:08x}\n{json}", json.len());
    assert_eq!(State::decode(file.as_bytes()), Ok(former));
}

#[test]
fn a_half_written_file_of_a_crash_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let opened = open(directory.path()).unwrap();
    opened.store.save(&sample(3)).unwrap();
    drop(opened);
    let whole = sample(9).encode().unwrap();
    for length in [0, 1, whole.len() / 2, whole.len()] {
        std::fs::write(directory.path().join("state.new"), &whole[..length]).unwrap();
        let opened = open(directory.path()).unwrap();
        assert_eq!(opened.state, sample(3));
        opened.store.save(&sample(3)).unwrap();
    }
}

#[test]
fn a_damaged_file_is_one_sentence_and_stays_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let whole = sample(5).encode().unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = open(directory.path()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("is damaged: it"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert_eq!(std::fs::read(&path).unwrap().len(), length);
    }
    let newer = String::from_utf8(whole)
        .unwrap()
        .replacen("state 1", "state 2", 1);
    std::fs::write(&path, newer).unwrap();
    let error = open(directory.path()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("version 2"), "{error}");
}

#[test]
fn two_managers_do_not_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let _first = open(directory.path()).unwrap();
    let error = open(directory.path()).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("another ibtap-em uses the state directory"),
        "{error}"
    );
}

#[test]
fn a_lid_belongs_to_one_port() {
    let mut state = sample(2);
    for member in state.members.values_mut() {
        member.lid = Lid::new(5);
    }
    let error = State::decode(&state.encode().unwrap())
        .unwrap_err()
        .to_string();
    assert!(error.contains("0x000005"), "{error}");
}

proptest! {
    #[test]
    fn no_change_of_a_byte_goes_unseen(at: prop::sample::Index, change in 1..=255_u8) {
        let whole = sample(4).encode().unwrap();
        let mut file = whole.clone();
        let at = at.index(file.len());
        file[at] ^= change;
        // Digits of the header may be written in more than one way.
        if let Ok(state) = State::decode(&file) {
            prop_assert_eq!(state, sample(4));
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(file: Vec<u8>) {
        let _ = State::decode(&file);
        let mut headed = b"ibtap-em state 1 ".to_vec();
        headed.extend(&file);
        let _ = State::decode(&headed);
    }
}
