//! NodeInfo with any number of virtual ports.

use super::*;
use crate::attribute::NodeInfo;
use crate::mad::MacListQuery;

impl World {
    fn node_info(&mut self, first: u8) -> NodeInfo {
        self.get(attribute::NODE_INFO, first, &MacListQuery::default())
    }

    /// All pages, each requested with `next` of the page before.
    fn pages(&mut self) -> Vec<NodeInfo> {
        let mut pages = vec![self.node_info(0)];
        while let Some(next) = pages.last().map(|page| page.next).filter(|next| *next != 0) {
            pages.push(self.node_info(next));
        }
        pages
    }
}

fn indexes(pages: &[NodeInfo]) -> Vec<u8> {
    let ports = pages.iter().flat_map(|page| &page.ports);
    ports.map(|port| port.index).collect()
}

#[test]
fn all_255_ports_are_in_the_pages() {
    let mut w = World::new();
    let added = (0..=255).filter(|n| w.agent.add_port(Time(0), *n, new_port(*n)));
    let added: Vec<u8> = added.collect();
    assert_eq!(added, (0..=254).collect::<Vec<u8>>());
    let pages = w.pages();
    assert_eq!(indexes(&pages), added);
    let sizes: Vec<usize> = pages.iter().map(|page| page.ports.len()).collect();
    assert_eq!(sizes, [96, 96, 63]);
    let covered: Vec<_> = pages.iter().map(NodeInfo::range).collect();
    assert_eq!(covered, [0..=95, 96..=191, 192..=255]);
    let mut bytes = Vec::new();
    pages[0].encode(&mut bytes);
    assert_eq!(bytes.len(), mad::DATA_MAX);
    // The announcement to the group has the first page and `next`.
    let sent = w.agent.poll_transmit(Time(500)).unwrap();
    let announced: NodeInfo = Mad::parse(&sent.mad).unwrap().attribute().unwrap();
    assert_eq!(announced, pages[0]);
}

#[test]
fn ports_that_come_and_go_between_two_pages_hide_no_others() {
    let mut w = World::new();
    for n in (2..=254).step_by(2) {
        w.agent.add_port(Time(0), n, new_port(n));
    }
    let first = w.node_info(0);
    assert_eq!((first.ports.len(), first.next), (96, 192));
    w.agent.remove_port(Time(0), 0);
    w.agent.add_port(Time(0), 5, new_port(5));
    let second = w.node_info(first.next);
    assert_eq!(
        indexes(&[second]),
        (192..=254).step_by(2).collect::<Vec<u8>>()
    );
    let none = w.node_info(255);
    assert_eq!((none.ports.len(), none.next), (0, 0));
}

#[test]
fn a_page_that_does_not_advance_is_malformed() {
    let w = World::new();
    let good = w.agent.node_info(0);
    let bytes = |first, next| {
        let mut bytes = Vec::new();
        let info = NodeInfo {
            first,
            next,
            ..good.clone()
        };
        info.encode(&mut bytes);
        bytes
    };
    assert_eq!(NodeInfo::decode(&bytes(0, 0)), Ok(good.clone()));
    assert!(NodeInfo::decode(&bytes(0, 1)).is_ok());
    // It contains port 0, which is below `first`.
    assert!(NodeInfo::decode(&bytes(1, 0)).is_err());
    for (first, next) in [(7, 7), (7, 3), (255, 1)] {
        assert!(NodeInfo::decode(&bytes(first, next)).is_err());
    }
}
