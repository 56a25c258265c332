//! The whole screen: answers and keys in, lines out.

use std::cell::Cell;
use std::time::Duration;

use control::api::{
    ConnectionInfo, Counters, InterfaceStats, LinkAddress, LogLevel, NeighbourInfo, NeighbourState,
    VersionInfo, WorkerStats,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::draw::{Look, draw, text};
use super::model::{Action, Model};
use super::sample::{Answer, List, Listed, Query, Sample};
use super::update;
use super::view::View;
use crate::text::tests::{connection, interface};

const SECOND: Duration = Duration::from_secs(1);

/// A model with a fake clock and a terminal.
struct Top {
    model: Model,
    now: Duration,
    terminal: Terminal<TestBackend>,
    look: Look,
}

impl Top {
    fn new(view: View, width: u16, height: u16) -> Top {
        Top {
            model: Model::new(view, SECOND),
            now: Duration::ZERO,
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
            look: Look::new(true),
        }
    }

    fn resize(&mut self, width: u16, height: u16) {
        self.terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    }

    /// The lines of the screen.
    fn lines(&mut self) -> Vec<String> {
        let (model, now, look) = (&mut self.model, self.now, self.look);
        let draw = |frame: &mut ratatui::Frame<'_>| draw(model, now, frame.buffer_mut(), look);
        self.terminal.draw(draw).unwrap();
        let buffer = self.terminal.backend().buffer();
        let lines = buffer
            .content()
            .chunks(usize::from(buffer.area.width).max(1));
        let line = |cells: &[ratatui::buffer::Cell]| {
            let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
            line.trim_end().to_owned()
        };
        lines.map(line).collect()
    }

    fn has(&mut self, words: &str) -> bool {
        self.lines().iter().any(|line| line.contains(words))
    }

    fn press(&mut self, codes: impl IntoIterator<Item = KeyCode>) {
        for code in codes {
            let key = KeyEvent::new(code, KeyModifiers::NONE);
            assert_ne!(self.model.key(key), Action::Quit, "{code:?}");
        }
    }

    fn write(&mut self, text: &str) {
        self.press(text.chars().map(KeyCode::Char));
    }

    /// Waits for the next query.
    fn query(&mut self) -> Query {
        self.now += self.model.wait(self.now).expect("it will ask");
        self.model.query(self.now).expect("it asks")
    }

    /// Answers the next query of process 7.
    fn answer(&mut self, interfaces: Vec<InterfaceStats>, listed: Option<Listed>) {
        let query = self.query();
        let sample = sample(self.now, 7, &query, interfaces, listed);
        self.model.take(self.now, sample);
    }
}

fn sample(
    at: Duration,
    pid: u32,
    query: &Query,
    ipoib: Vec<InterfaceStats>,
    listed: Option<Listed>,
) -> Answer {
    assert_eq!(query.list.is_some(), listed.is_some(), "{query:?}");
    let shown = |stats: &InterfaceStats| {
        let mut of = interface();
        of.name.clone_from(&stats.name);
        (of.carrier, of.connections, of.reason) = (true, Some(17), None);
        super::view::Shown::ipoib(&of)
    };
    Answer::Sample(Box::new(Sample {
        at,
        daemon: VersionInfo {
            product: "ibtapd".into(),
            version: "0.1.0".into(),
            pid,
            log_level: LogLevel::Info,
        },
        shown: query.interfaces.then(|| ipoib.iter().map(shown).collect()),
        ipoib,
        vnics: vec![],
        listed,
        listing: Duration::from_millis(300),
    }))
}

/// An interface that has received `bytes` and dropped a tenth of a packet for each 1000 bytes.
fn stats(name: &str, bytes: u64) -> InterfaceStats {
    InterfaceStats {
        name: name.to_owned(),
        rx_packets: bytes / 1000,
        rx_bytes: bytes,
        tx_packets: 1,
        tx_bytes: 100,
        rx_dropped: bytes / 10_000,
        protocol: [("rx_bad_arp", bytes / 10_000), ("neighbours_learned", 3)]
            .into_iter()
            .collect(),
        workers: vec![WorkerStats {
            worker: 0,
            port: "soft/eth0".into(),
            counters: [("rx_icrc_errors", 12)].into_iter().collect::<Counters>(),
        }],
        ..InterfaceStats::default()
    }
}

fn neighbours(count: u32) -> Vec<NeighbourInfo> {
    let one = |i: u32| {
        let [a, b, c, d] = i.to_be_bytes();
        NeighbourInfo {
            mac: LinkAddress([2, 0, a, b, c, d]),
            address: LinkAddress([0; 20]),
            gid: "fe80::2".parse().unwrap(),
            qpn: fabric::Qpn::new(i),
            ips: vec![std::net::Ipv4Addr::from(0x0a00_0000 + i).into()],
            state: NeighbourState::Learned,
            idle_ms: u64::from(i) * 100,
            queuelen: None,
        }
    };
    (0..count).map(one).collect()
}

/// Two interfaces that receive, with known rates.
fn two(view: View, width: u16, height: u16) -> Top {
    let mut top = Top::new(view, width, height);
    top.answer(vec![stats("ib0", 0), stats("ib1", 0)], None);
    top.answer(vec![stats("ib0", 20_000), stats("ib1", 5_000_000)], None);
    top
}

#[test]
fn rates_fit_80_columns() {
    let mut top = two(View::Interfaces, 80, 10);
    let lines = top.lines();
    assert_eq!(
        lines[0].trim_end(),
        format!("{:<70}{:>10}", "ibtapd 0.1.0 process 7", "every 1 s")
    );
    let rates = "rx 40.2M bit/s 5.02k packet/s   tx     0 bit/s     0 packet/s     502 drop/s";
    assert_eq!(lines[1], rates);
    assert_eq!(
        lines[2][..62],
        *"1 Interfaces  2 Drops  3 Neighbours  4 Connections  5 Counters"
    );
    let heading =
        "NAME          STATE      RX-BIT/S TX-BIT/S RX-PKT/S TX-PKT/S DROP/S  DROPS  CONN";
    assert_eq!(lines[3], heading);
    assert_eq!(
        lines[4],
        "ib0           up             160k        0       20        0      2      2    17"
    );
    assert_eq!(
        lines[5],
        "ib1           up            40.0M        0    5.00k        0    500    500    17"
    );
    assert!(lines[8].starts_with("P_Key"), "{}", lines[8]);
    assert!(
        lines[9].starts_with("F1Help F3Search F4Filter F6Sort F10Quit"),
        "{}",
        lines[9]
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
}

#[test]
fn the_important_columns_fit_40_columns() {
    let mut top = two(View::Interfaces, 40, 10);
    let lines = top.lines();
    assert_eq!(lines[1], "bit/s rx 40.2M tx 0, drop/s 502");
    assert_eq!(lines[2], "1If 2Drop 3Neigh 4Conn 5Count          2");
    assert_eq!(lines[3], "NAME            RX-BIT/S TX-BIT/S DROP/S");
    assert_eq!(lines[9], "F1Help F3Search F4Filter F6Sort F10Quit");
    for view in View::ALL {
        top.model = Model::new(view, SECOND);
        top.answer(
            vec![stats("ib0", 1)],
            match view {
                View::Connections => Some(Listed::Connections(vec![])),
                _ => None,
            },
        );
        assert!(top.lines().iter().all(|line| line.chars().count() <= 40));
    }
}

#[test]
fn no_size_and_no_overlay_breaks_the_screen() {
    let mut top = two(View::Interfaces, 80, 24);
    for overlay in ["", "h", "/", "\\", ">"] {
        top.write(overlay);
        for (width, height) in (0..90)
            .zip((0..30).cycle())
            .chain([(1, 1), (500, 100), (3, 60)])
        {
            top.resize(width, height);
            assert_eq!(
                top.lines().len(),
                usize::from(if width == 0 { 0 } else { height })
            );
        }
        top.press([KeyCode::Esc]);
    }
}

#[test]
fn ten_thousand_neighbours_are_sorted_filtered_and_searched() {
    let mut top = Top::new(View::Neighbours, 80, 24);
    top.answer(vec![stats("ib0", 0)], None);
    let query = top.query();
    assert_eq!(query.list, Some(List::Neighbours("ib0".into())));
    let listed = Listed::Neighbours("ib0".into(), neighbours(10_000));
    let answer = sample(top.now, 7, &query, vec![stats("ib0", 0)], Some(listed));
    top.model.take(top.now, answer);
    let lines = top.lines();
    assert!(
        lines[2].ends_with("5 Counters         ib0 10000"),
        "{}",
        lines[2]
    );
    assert!(lines[4].starts_with("10.0.0.0 "), "{}", lines[4]);
    assert!(lines[4].contains(" learned     0us "), "{}", lines[4]);

    top.press([KeyCode::End]);
    assert!(
        top.lines()[21].starts_with("10.0.39.15 "),
        "{:?}",
        top.lines()
    );
    top.write("I");
    top.press([KeyCode::Home]);
    assert!(
        top.lines()[4].starts_with("10.0.39.15 "),
        "{:?}",
        top.lines()
    );
    top.write("\\10.0.39.");
    assert!(top.has("ib0 16 of 10000 10.0.39."));
    top.press([KeyCode::Esc]);
    top.write("/10.0.7.200");
    assert!(
        top.lines()[22].starts_with("10.0.7.200 QPN"),
        "{:?}",
        top.lines()
    );
    top.press([KeyCode::Enter, KeyCode::F(6), KeyCode::Home, KeyCode::Enter]);
    assert!(
        top.lines()[22].starts_with("10.0.7.200 QPN"),
        "the cursor follows its row"
    );
    top.press([KeyCode::Up]);
    assert!(
        top.lines()[22].starts_with("10.0.7.199 QPN"),
        "sorted by address"
    );

    // The listing took 300 ms: the next one is at least 2.7 s later, and counters come meanwhile.
    for _ in 0..2 {
        top.answer(vec![stats("ib0", 0)], None);
    }
    let asked = top.query().list;
    assert_eq!(asked, Some(List::Neighbours("ib0".into())));
}

#[test]
fn only_what_the_view_shows_is_asked_for() {
    let mut top = two(View::Interfaces, 80, 24);
    let mut ask = |key| {
        top.write(key);
        let query = top.query();
        let list = query.list.as_ref().map(|list| match list {
            List::Connections => Listed::Connections(vec![]),
            _ => Listed::Neighbours("ib1".into(), vec![]),
        });
        let answer = sample(
            top.now,
            7,
            &query,
            vec![stats("ib0", 0), stats("ib1", 0)],
            list,
        );
        top.model.take(top.now, answer);
        (query.interfaces, query.list)
    };
    assert_eq!(ask("1"), (true, None));
    assert_eq!(ask("2"), (false, None));
    assert_eq!(ask("3"), (false, Some(List::Neighbours("ib0".into()))));
    assert_eq!(ask("]"), (false, Some(List::Neighbours("ib1".into()))));
    assert_eq!(ask("4"), (false, Some(List::Connections)));
    assert_eq!(ask("5"), (false, None));
    // A pause ends the queries, except the first of a view.
    top.write(" ");
    assert_eq!(top.model.wait(top.now), None);
    top.write("2");
    assert_eq!(top.query().list, None);
}

#[test]
fn the_neighbours_are_those_of_the_interface_at_the_cursor() {
    let mut top = two(View::Interfaces, 80, 24);
    top.press([KeyCode::Down, KeyCode::Enter]);
    let query = top.query();
    assert_eq!(query.list, Some(List::Neighbours("ib1".into())));
    let refused = Listed::Refused("No \x1b[31m.".into());
    let answer = sample(
        top.now,
        7,
        &query,
        vec![stats("ib0", 0), stats("ib1", 0)],
        Some(refused),
    );
    top.model.take(top.now, answer);
    assert!(top.has("No ?[31m."));
}

#[test]
fn drops_have_their_reason_rate_and_meaning() {
    let mut top = two(View::Drops, 80, 24);
    let lines = top.lines();
    assert_eq!(
        lines[3],
        "OWNER            COUNTER                      PER-S  TOTAL MEANING"
    );
    let arp = "ib1              rx_bad_arp                     500    500 Datagrams from the f~";
    assert_eq!(lines[4], arp);
    assert!(
        lines[5].starts_with("ib0              rx_bad_arp                       2      2 "),
        "{}",
        lines[5]
    );
    assert!(
        lines[6].starts_with("soft/eth0        rx_icrc_errors                   0     12 "),
        "{}",
        lines[6]
    );
    assert!(lines[7].is_empty(), "no traffic: {}", lines[7]);
    assert!(
        lines[22].starts_with("ib1 rx_bad_arp 500, Datagrams from the fabric dropped: ARP with")
    );
    let buffer = top.terminal.backend().buffer();
    assert_eq!(buffer[(0, 5)].fg, Color::Red, "drops now");
    assert_eq!(buffer[(0, 6)].fg, Color::Reset, "drops before");
    top.write("5");
    assert!(top.has("neighbours_learned"));
    top.write("2");
    top.press([KeyCode::F(4)]);
    top.write("icrc");
    top.press([KeyCode::Enter]);
    assert!(top.has("1 of 3 icrc") && !top.has("rx_bad_arp"));
}

#[test]
fn a_daemon_that_is_away_keeps_the_screen_and_comes_back_without_wild_rates() {
    let mut top = two(View::Interfaces, 80, 12);
    top.press([KeyCode::F(6), KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
    top.press([KeyCode::F(4)]);
    top.write("ib");
    top.press([KeyCode::Enter]);
    assert!(top.lines()[4].starts_with("ib1           up            40.0M"));
    for _ in 0..3 {
        top.query();
        let reason = "cannot reach ibtapd\x07".to_owned();
        top.model.take(top.now, Answer::Away(reason));
    }
    let lines = top.lines();
    assert_eq!(lines[1], "ibtapd is away for 2 s; trying again");
    assert_eq!(lines[10], "cannot reach ibtapd?");
    assert!(
        lines[4].starts_with("ib0           up                -"),
        "{}",
        lines[4]
    );
    // The next daemon has counted more already, or less.
    for (bytes, rate) in [
        (9_000_000, "-"),
        (9_001_000, "8.00k"),
        (0, "-"),
        (1000, "8.00k"),
    ] {
        let query = top.query();
        let of = vec![stats("ib0", bytes), stats("ib1", 0)];
        let answer = sample(top.now, 8, &query, of, None);
        top.model.take(top.now, answer);
        let line = top.lines().into_iter().find(|line| line.starts_with("ib0"));
        let line = line.expect("a line of ib0");
        assert_eq!(line.split_whitespace().nth(2), Some(rate), "{line}");
    }
    assert!(top.has("process 8") && top.has("2 of 2 ib"));
    let (sort, descending) = top.model.table().sorted_by();
    assert_eq!((sort, descending), (2, true));
}

#[test]
fn a_new_process_that_was_not_missed_gives_no_rates_either() {
    let mut top = two(View::Interfaces, 80, 12);
    let query = top.query();
    let answer = sample(top.now, 8, &query, vec![stats("ib0", 9_000_000)], None);
    top.model.take(top.now, answer);
    assert!(top.lines()[4].starts_with("ib0           up                -"));
}

#[test]
fn connections_have_rates_of_their_own() {
    let of = |tx_bytes, retransmits| ConnectionInfo {
        tx_bytes,
        retransmits,
        in_flight: 3,
        srtt_ns: Some(45_000),
        ..connection()
    };
    let mut top = Top::new(View::Connections, 80, 12);
    let list = |tx, re| Some(Listed::Connections(vec![of(tx, re)]));
    top.answer(vec![stats("ib0", 0)], list(0, 0));
    // The listing took 300 ms, so two queries are without it.
    top.answer(vec![stats("ib0", 0)], None);
    top.answer(vec![stats("ib0", 0)], None);
    top.answer(vec![stats("ib0", 0)], list(3_000_000, 6));
    let lines = top.lines();
    let words: Vec<_> = lines[4].split_whitespace().collect();
    assert_eq!(
        words,
        [
            "10.9.0.2",
            "ib0",
            "active",
            "ESTABLISHED",
            "8.00M",
            "0",
            "2",
            "45us",
            "3"
        ]
    );
    assert!(lines[10].contains("6 retransmitted"), "{}", lines[10]);
}

#[test]
fn names_do_not_reach_the_terminal_unchanged() {
    let mut top = Top::new(View::Interfaces, 80, 12);
    let name = "ib\x1b]0;x\x07\u{9b}31m\u{202e}";
    top.answer(vec![stats(name, 0)], None);
    assert!(top.lines()[4].starts_with("ib?]0;x??31m?"));
    for key in ["2", "3", "5"] {
        top.write(key);
        let lines = top.lines().concat();
        assert!(
            !lines.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{lines:?}"
        );
    }
}

#[test]
fn without_colours_there_are_attributes_only() {
    let mut top = two(View::Interfaces, 80, 24);
    top.look = Look::new(false);
    for key in ["", ">", "\x1b", "h"] {
        top.write(key);
        top.lines();
        let cells = top.terminal.backend().buffer().content();
        let is_plain =
            |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
        assert!(cells.iter().all(is_plain));
    }
}

#[test]
fn keys_quit_pause_and_change_the_interval() {
    let mut model = Model::new(View::Interfaces, SECOND);
    let mut key = |code, modifiers| model.key(KeyEvent::new(code, modifiers));
    for code in [KeyCode::Char('q'), KeyCode::F(10)] {
        assert_eq!(key(code, KeyModifiers::NONE), Action::Quit);
    }
    assert_eq!(key(KeyCode::Char('/'), KeyModifiers::NONE), Action::Draw);
    assert_eq!(
        key(KeyCode::Char('q'), KeyModifiers::NONE),
        Action::Draw,
        "a text"
    );
    for (code, action) in [
        ('c', Action::Quit),
        ('z', Action::Suspend),
        ('l', Action::Redraw),
    ] {
        assert_eq!(key(KeyCode::Char(code), KeyModifiers::CONTROL), action);
    }
    let mut top = two(View::Interfaces, 80, 24);
    for (key, text) in [
        ("+", "every 2 s"),
        ("--", "every 0.5 s"),
        (" ", "paused"),
        (" ", "every 0.5 s"),
    ] {
        top.write(key);
        assert!(top.lines()[0].ends_with(text), "{}", top.lines()[0]);
    }
}

#[test]
fn the_text_has_all_rows() {
    let mut model = Model::new(View::Interfaces, SECOND);
    let query = model.query(SECOND).expect("a query");
    let of = (0..300).map(|i| stats(&format!("ib{i}"), 0)).collect();
    model.take(SECOND, sample(SECOND, 7, &query, of, None));
    let text = text(&mut model, SECOND, 60);
    assert_eq!(text.lines().count(), 304);
    assert!(
        text.lines()
            .last()
            .is_some_and(|line| line.starts_with("ib299 "))
    );
    assert!(text.lines().all(|line| line.chars().count() <= 60));
}

/// Otherwise the text of a slow daemon would never be printed.
#[test]
fn an_update_ends_although_each_answer_takes_longer_than_the_delay() {
    for (view, expected) in [(View::Drops, 1..=2), (View::Neighbours, 2..=2)] {
        let mut model = Model::new(view, SECOND);
        let (now, mut asked) = (Cell::new(SECOND), 0);
        let ask = |query: &Query| {
            now.set(now.get() + 2 * SECOND);
            asked += 1;
            assert!(asked < 9, "it does not end");
            let table = || Listed::Neighbours("ib0".into(), neighbours(1));
            let listed = query.list.as_ref().map(|_| table());
            match sample(now.get(), 7, query, vec![stats("ib0", 0)], listed) {
                Answer::Sample(sample) => Ok(*sample),
                other => panic!("{other:?}"),
            }
        };
        update(&mut model, || now.get(), ask).unwrap();
        assert!(expected.contains(&asked), "{view:?}: {asked}");
    }
}
