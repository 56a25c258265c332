//! The membership of an interface's port in the interface's partition.

use control::api::{InterfaceInfo, PkeyTable};
use fabric::PKey;

use crate::doctor::finding::{Finding, Level};

const CHECK: &str = "pkey";

/// Judges an interface's P_Key by the table of its port; no finding for a full member.
pub fn judge(interface: &InterfaceInfo, tables: &[PkeyTable]) -> Option<Finding> {
    let table = tables.iter().find(|t| t.port == interface.port)?;
    let (name, pkey) = (interface.qualified_name(), interface.pkey);
    let partition = |entry: &&PKey| entry.full() == pkey.full();
    let of_partition: Vec<&PKey> = table.pkeys.iter().filter(partition).collect();
    if of_partition.is_empty() {
        return Some(waits(interface, table));
    }
    // IBA vol. 1, 10.9.3: two limited members exchange no packets, not even ARP.
    of_partition.iter().all(|entry| !entry.is_full()).then(|| {
        let found = format!(
            "is a limited member of partition {} and reaches full members only",
            pkey.full()
        );
        let entries = table.pkeys.iter().map(|e| {
            if e.full() == pkey.full() {
                e.full()
            } else {
                *e
            }
        });
        Finding::new(CHECK, Level::Note, name, found).advise(format!(
            "to reach a limited member, one side must be a full member: here {}",
            set(table, entries)
        ))
    })
}

fn waits(interface: &InterfaceInfo, table: &PkeyTable) -> Finding {
    let (name, pkey) = (interface.qualified_name(), interface.pkey);
    let found = format!(
        "waits: its P_Key {pkey} is not in the table of {}, which has {}",
        table.port,
        list(table.pkeys.iter().copied())
    );
    if !table.settable {
        return Finding::new(CHECK, Level::Fail, name, found).advise(format!(
            "add {} to the partitions of this host in the subnet manager; without a subnet manager, \
             only the default partition exists",
            pkey.full()
        ));
    }
    Finding::new(CHECK, Level::Fail, name, found).advise(format!(
        "{}; or \"auto\" for the P_Keys of all interfaces; permanently: pkeys in the configuration",
        set(table, table.pkeys.iter().copied().chain([pkey.full()]))
    ))
}

fn set(table: &PkeyTable, entries: impl Iterator<Item = PKey>) -> String {
    if !table.settable {
        return "in the subnet manager".to_owned();
    }
    format!("ibtap pkey set {} {}", table.port, list(entries))
}

/// The valid entries, as a list.
fn list(entries: impl Iterator<Item = PKey>) -> String {
    let used: Vec<String> = entries
        .filter(|entry| entry.is_valid())
        .map(|entry| entry.to_string())
        .collect();
    used.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(pkey: u16, table: &[u16]) -> Option<(Level, String, String)> {
        let interface = InterfaceInfo {
            pkey: PKey::new(pkey),
            netns: Some("blue".into()),
            ..super::super::tests::interface()
        };
        let table = PkeyTable {
            port: interface.port.clone(),
            pkeys: table.iter().map(|key| PKey::new(*key)).collect(),
            automatic: false,
            settable: true,
        };
        let finding = judge(&interface, &[table])?;
        assert_eq!(finding.subject, "blue/ib0");
        Some((finding.level, finding.found, finding.advice.unwrap()))
    }

    #[test]
    fn a_full_member_is_as_it_should_be() {
        assert_eq!(judged(0xffff, &[0xffff]), None);
        // The full entry counts, also beside a limited entry and for an interface with a limited P_Key.
        assert_eq!(judged(0x0001, &[0x0001, 0x8001]), None);
        assert_eq!(judge(&super::super::tests::interface(), &[]), None);
    }

    #[test]
    fn limited_members_do_not_reach_each_other() {
        let (level, found, advice) = judged(0x0001, &[0xffff, 0x0001]).unwrap();
        assert_eq!(level, Level::Note);
        assert!(
            found.contains("limited member of partition 0x8001"),
            "{found}"
        );
        assert!(
            advice.ends_with("ibtap pkey set soft/eth0 0xffff,0x8001"),
            "{advice}"
        );
    }

    #[test]
    fn a_devices_table_is_not_ours_to_set() {
        let interface = super::super::tests::interface();
        let table = |entry: u16| PkeyTable {
            port: interface.port.clone(),
            pkeys: vec![PKey::new(entry)],
            automatic: false,
            settable: false,
        };
        for entry in [0x8001, 0x7fff] {
            let finding = judge(&interface, &[table(entry)]).unwrap();
            let advice = finding.advice.unwrap();
            assert!(advice.contains("subnet manager"), "{advice}");
            assert!(!advice.contains("pkey set"), "{advice}");
        }
    }

    #[test]
    fn a_p_key_that_the_table_lacks_is_waited_for() {
        let (level, found, advice) = judged(0x8001, &[0xffff, 0, 0x8002]).unwrap();
        assert_eq!(level, Level::Fail);
        assert!(found.contains("0x8001 is not in the table of soft/eth0, which has 0xffff,0x8002"));
        assert!(
            advice.starts_with("ibtap pkey set soft/eth0 0xffff,0x8002,0x8001;"),
            "{advice}"
        );
    }
}
