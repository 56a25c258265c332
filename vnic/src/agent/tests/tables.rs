//! MAC tables and directories, page by page.

use super::*;
use crate::attribute::LidDirectory;
use crate::mac_table::{MAC_TABLE_ENTRIES, MacEntry};
use crate::mad::{LID_DIRECTORY_PAGE, LidDirectoryQuery, MacEntries, MacEntriesQuery};

fn entry(n: u16) -> MacEntry {
    let [a, b] = n.to_be_bytes();
    MacEntry {
        mac: [0x52, 0x54, 0, 0, a, b],
        mask: [0xff; 6],
        dlid_sd: u32::from(n) << 8,
    }
}

fn page(offset: u16, count: u16, digest: u32) -> MacEntries {
    MacEntries {
        offset,
        digest,
        entries: (offset..offset + count).map(|n| entry(n + 1)).collect(),
    }
}

impl World {
    fn set_page(&mut self, page: &MacEntries) -> u16 {
        self.ask(method::SET, attribute::VESW_MAC_ENTRIES, 0, page)
            .0
    }

    fn get_page(&mut self, offset: u16, count: u16) -> MacEntries {
        let query = MacEntriesQuery { offset, count };
        self.get(attribute::VESW_MAC_ENTRIES, 0, &query)
    }

    fn set_directory(&mut self, page: &LidDirectory) -> (u16, Option<LidDirectory>) {
        let (code, data) = self.ask(method::SET, attribute::LID_DIRECTORY, 0, page);
        (code, LidDirectory::decode(&data).ok())
    }
}

#[test]
fn m11_m12_pages_are_bounded_by_the_datagram_and_the_table() {
    let mut w = World::new();
    assert_eq!(w.set_page(&page(0, 125, 1)), status::OK);
    assert_eq!(w.set_page(&page(2048 - 125, 125, 2)), status::OK);
    assert_eq!(w.set_page(&page(2048 - 124, 125, 3)), status::INVALID);
    // A count of 126: as many do not fit.
    let header = w.header(method::SET, attribute::VESW_MAC_ENTRIES, 0);
    let request = [
        mad::write_empty(&header),
        [0, 0, 0, 126].to_vec(),
        vec![0; 2004],
    ]
    .concat();
    assert_eq!(request.len(), mad::MAD_MAX);
    assert_eq!(w.send(MANAGER, &request).0, status::INVALID);
    for (offset, count, right) in [
        (1923, 125, true),
        (1924, 125, false),
        (0, 126, false),
        (2048, 0, true),
    ] {
        let query = MacEntriesQuery { offset, count };
        let (code, _) = w.ask(method::GET, attribute::VESW_MAC_ENTRIES, 0, &query);
        assert_eq!(code == status::OK, right, "{offset} {count}");
    }
}

#[test]
fn m13_an_address_of_zeros_empties_its_place_alone() {
    let mut w = World::new();
    w.set_page(&page(0, 10, 1));
    let hole = MacEntries {
        offset: 4,
        digest: 2,
        entries: vec![MacEntry::default()],
    };
    w.set_page(&hole);
    let mut expected = page(0, 10, 2);
    expected.entries[4] = MacEntry::default();
    assert_eq!(w.get_page(0, 10), expected);
    assert_eq!(w.calls(), [Call::Table(0, 10), Call::Table(0, 9)]);
}

#[test]
fn m14_m15_the_digest_is_that_of_the_last_good_page() {
    let mut w = World::new();
    w.set_page(&page(0, 3, 0xabcd));
    assert_eq!(w.info(0).mac_tbl_digest, 0xabcd);
    assert_eq!(w.set_page(&page(2047, 2, 0x9999)), status::INVALID);
    assert_eq!(w.get_page(0, 5).digest, 0xabcd);
    assert_eq!(w.get_page(2047, 1).entries, [MacEntry::default()]);
    // Changes only the digest.
    assert_eq!(w.set_page(&page(0, 0, 0xbeef)), status::OK);
    assert_eq!(w.info(0).mac_tbl_digest, 0xbeef);
    assert_eq!(w.get_page(0, 3).entries, page(0, 3, 0).entries);
}

#[test]
fn m16_a_holder_of_the_old_table_sees_no_change() {
    let mut w = World::new();
    w.set_page(&page(0, 3, 1));
    let old = Arc::clone(&w.agent.vports[&0].table);
    w.set_page(&page(1, 125, 2));
    assert_eq!((old.len(), old.digest()), (3, 1));
    assert_eq!(w.agent.vports[&0].table.len(), 126);
}

#[test]
fn e07_a_full_table_takes_17_pages() {
    let mut w = World::new();
    let starts: Vec<u16> = (0..MAC_TABLE_ENTRIES as u16).step_by(125).collect();
    assert_eq!(starts.len(), 17);
    for start in starts {
        let count = (MAC_TABLE_ENTRIES as u16 - start).min(125);
        assert_eq!(w.set_page(&page(start, count, 5)), status::OK);
    }
    assert_eq!(w.agent.vports[&0].table.len(), MAC_TABLE_ENTRIES);
}

#[test]
fn a_page_that_comes_twice_changes_nothing() {
    let mut w = World::new();
    w.set_page(&page(0, 3, 1));
    w.calls();
    assert_eq!(w.set_page(&page(0, 3, 1)), status::OK);
    assert_eq!(w.calls(), []);
}

#[test]
fn m17_deleting_removes_all_but_the_interface() {
    let mut w = World::forwarding();
    w.set_page(&page(0, 3, 1));
    w.set_directory(&directory(0, 2, 2, 9));
    w.calls();
    let (code, data) = w.ask_empty(method::SET, attribute::DELETE_VESW, 0);
    assert_eq!((code, w.calls()), (status::OK, vec![Call::Delete(0)]));
    let info = VeswPortInfo::decode(&data).unwrap();
    let gen_count = info.uc_macs_gen_count;
    let unset = VeswPortInfo {
        eth_link_status: 2,
        uc_macs_gen_count: gen_count,
        ..VeswPortInfo::default()
    };
    assert_eq!((&info, w.info(0)), (&unset, unset.clone()));
    assert_eq!(w.get_page(0, 3).entries, [MacEntry::default(); 3]);
    assert_eq!(w.get_page(0, 3).digest, 0);
    let none: LidDirectory = w.get(attribute::LID_DIRECTORY, 0, &LidDirectoryQuery::default());
    assert_eq!((none.total, none.digest), (0, 0));
    // The manager gets a trap about the link, and may set the port again, also with the same address.
    assert_eq!(w.traps(), [TrapKind::LinkStatus]);
    w.set(0, &forwarding());
    assert_eq!(w.calls()[0], Call::Mac(0, forwarding().base_mac_addr));
}

/// A page of a list of `total` members.
fn directory(start: u16, count: u16, total: u16, digest: u32) -> LidDirectory {
    let member = |n: u16| {
        let address = NodeAddress {
            gid: gid(n as u8 | 1),
            qpn: Qpn::new(n.into()),
        };
        (Lid::new(u32::from(n) + 1), address)
    };
    LidDirectory {
        start,
        total,
        digest,
        entries: (start..start + count).map(member).collect(),
    }
}

#[test]
fn a_directory_takes_effect_when_complete_in_any_order() {
    let mut w = World::new();
    let per_page = LID_DIRECTORY_PAGE as u16;
    let total = 2 * per_page + 10;
    let pages = [
        directory(per_page, per_page, total, 7),
        directory(0, per_page, total, 7),
        directory(2 * per_page, 10, total, 7),
    ];
    let progress: Vec<u16> = pages
        .iter()
        .map(|page| w.set_directory(page).1.unwrap().start)
        .collect();
    assert_eq!(progress, [0, 2 * per_page, total]);
    assert_eq!(w.calls(), [Call::Directory(0, total.into())]);
    let query = LidDirectoryQuery {
        start: per_page,
        count: 200,
    };
    let read: LidDirectory = w.get(attribute::LID_DIRECTORY, 0, &query);
    assert_eq!(read, pages[0]);
    // The same page again, as after a lost answer.
    let (code, answer) = w.set_directory(&pages[2]);
    assert_eq!((code, answer.unwrap().start), (status::OK, total));
    assert_eq!(w.calls(), []);
}

#[test]
fn a_new_directory_replaces_the_old_one_when_complete() {
    let mut w = World::new();
    w.set_directory(&directory(0, 2, 2, 1));
    w.set_directory(&directory(0, 2, 4, 2));
    w.set_directory(&directory(2, 1, 3, 3));
    // A page of the first list, which is still in force.
    assert_eq!(w.set_directory(&directory(0, 2, 2, 1)).1.unwrap().start, 2);
    w.set_directory(&directory(0, 2, 3, 3));
    assert_eq!(w.calls(), [Call::Directory(0, 2)]);
    w.set_directory(&directory(2, 1, 3, 3));
    assert_eq!(w.calls(), [Call::Directory(0, 3)]);
    // An empty list is valid.
    w.set_directory(&directory(0, 0, 0, 4));
    assert_eq!(w.calls(), [Call::Directory(0, 0)]);
}

#[test]
fn invalid_directories_are_refused() {
    let mut w = World::new();
    w.set_directory(&directory(0, 2, 2, 1));
    let mut doubled = directory(0, 2, 2, 2);
    doubled.entries[1].0 = doubled.entries[0].0;
    let mut to_group = directory(0, 1, 1, 2);
    to_group.entries[0].1.gid = Gid([0xff; 16]);
    let mut nowhere = directory(0, 1, 1, 2);
    nowhere.entries[0].1.gid = Gid::UNSPECIFIED;
    let mut no_lid = directory(0, 1, 1, 2);
    no_lid.entries[0].0 = Lid::MULTICAST;
    let bad = [
        directory(0, 2, 2, 0),
        directory(1, 2, 2, 2),
        directory(0, 1, 8193, 2),
        doubled,
        to_group,
        nowhere,
        no_lid,
    ];
    for page in &bad {
        assert_eq!(w.set_directory(page).0, status::INVALID, "{page:?}");
    }
    assert_eq!(w.calls(), [Call::Directory(0, 2)]);
}
