//! `ibtap top` in a terminal: tmux has the screen and the keys.

use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::hostile::arp;
use crate::lab::attacker::{Attacker, Numbers};
use crate::lab::{Done, Host, Lab, Load, SOON, eventually, ibtap};

/// Lines of the screen.
const ROWS: u16 = 24;

/// A shell in a terminal of a tmux server of its own, which ends with this value and with the test.
struct Screen {
    server: Child,
    socket: PathBuf,
}

impl Drop for Screen {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the screen:\n{}", self.lines().join("\n"));
        }
        // The shell and its programs get SIGHUP.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Screen {
    /// Runs `ibtap` with the host's socket and these words.
    fn open(host: &Host, columns: u16, words: &str) -> Screen {
        let socket = host.file("tmux.sock");
        // -D: the server is our child.
        let server = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "tmux",
                "-D",
                "-u",
                "-f",
                "/dev/null",
                "-S",
            ])
            .arg(&socket)
            .env_remove("TMUX")
            .spawn()
            .expect("util-linux is installed");
        let screen = Screen { server, socket };
        let script = format!(
            "trap 'echo $? >{closed}; exit' HUP; \
             stty -g >{before}; echo the shell; \
             sh -c 'echo $$ >{pid}; exec {ibtap} --socket {socket} {words}'; \
             echo status $?; stty -g >{after}; exec sleep 1000",
            pid = host.file("pid").display(),
            closed = host.file("closed").display(),
            before = host.file("before").display(),
            after = host.file("after").display(),
            ibtap = ibtap().display(),
            socket = host.socket().display(),
        );
        let (columns, rows) = (columns.to_string(), ROWS.to_string());
        let session = [
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            "sh",
            "-c",
            &script,
        ];
        eventually(SOON, "the tmux server", || {
            (screen.tmux(&session).code == Some(0)).then_some(())
        });
        screen
    }

    fn tmux(&self, words: &[&str]) -> Done {
        // -N: tmux starts no other server.
        let mut command = Command::new("tmux");
        command.args(["-N", "-S"]).arg(&self.socket).args(words);
        Done::of(&mut command)
    }

    fn lines(&self) -> Vec<String> {
        let text = self.tmux(&["capture-pane", "-p"]).out;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // Also before there is a screen.
        lines.resize(lines.len().max(usize::from(ROWS)), String::new());
        lines
    }

    /// Presses keys by the names of tmux; other words are typed.
    fn press(&self, keys: &[&str]) {
        let words: Vec<&str> = ["send-keys"].iter().chain(keys).copied().collect();
        let done = self.tmux(&words);
        assert_eq!(done.code, Some(0), "{done:?}");
    }

    fn resize(&self, columns: u16) {
        let done = self.tmux(&["resize-window", "-x", &columns.to_string()]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }

    /// Waits until the screen has what `find` wants.
    fn awaits<T>(&self, what: &str, find: impl Fn(&[String]) -> Option<T>) -> T {
        eventually(SOON, &format!("{what} on the screen"), || {
            find(&self.lines())
        })
    }

    /// Waits for a line that has all these words, and returns its words.
    fn awaits_line(&self, words: &[&str]) -> Vec<String> {
        self.awaits(&words.join(" "), |lines| {
            let has = |line: &&String| words.iter().all(|word| line.contains(word));
            let line = lines.iter().find(has)?;
            Some(line.split_whitespace().map(str::to_owned).collect())
        })
    }
}

/// A number with a prefix, as the screen shows it.
fn number(text: &str) -> f64 {
    let scale = match text.chars().last() {
        Some('k') => 1e3,
        Some('M') => 1e6,
        Some('G') => 1e9,
        Some('T') => 1e12,
        _ => 1.0,
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = digits.parse::<f64>();
    scale * number.unwrap_or_else(|_| panic!("{text:?} is no number"))
}

#[test]
fn rates_drops_and_neighbours_on_a_screen_that_survives_the_daemon() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let _ping = a.spawn(&format!("ping -q -i 0.02 {}", b.v4()));
    let screen = Screen::open(b, 80, "top -d 0.2");
    // Name, state, bits and packets in each direction.
    let busy = |lines: &[String]| {
        let line = lines.iter().find(|line| line.starts_with("ib0 "))?;
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let packets = words.get(4).filter(|packets| *packets != "-")?;
        (words[1] == "up" && number(packets) > 1.0).then_some(words)
    };
    let rates = screen.awaits("packets received", busy);
    assert!(number(&rates[2]) > 100.0, "bits received: {rates:?}");

    // 40 columns have the important ones.
    screen.resize(40);
    screen.awaits("a narrow screen", |lines| {
        let heading = lines[3].starts_with("NAME") && lines[3].ends_with("TX-BIT/S DROP/S");
        (heading && lines[4].starts_with("ib0 ")).then_some(())
    });
    screen.resize(80);
    screen.awaits_line(&["NAME", "RX-PKT/S"]);

    // Drops by reason, filtered and sorted.
    let attacker = Attacker::new(a, b);
    attacker.flood(300, |_| {
        let mut packet = attacker.packet(vec![0; 40]);
        packet.pkey = 0x8123;
        packet.datagram()
    });
    screen.press(&["2"]);
    screen.awaits_line(&["OWNER", "COUNTER", "PER-S"]);
    screen.press(&["F4", "violations", "Enter"]);
    let drops = screen.awaits_line(&["soft/eth0", "rx_pkey_violations"]);
    assert!(number(&drops[3]) >= 1.0, "{drops:?}");
    screen.press(&["F6", "Up", "Up", "Enter"]);

    // The daemon goes away and comes back.
    b.kill_daemon();
    screen.awaits_line(&["ibtapd is away for"]);
    screen.press(&["1"]);
    b.start(&[]);
    b.configure("ib0");
    let process = format!("process {}", b.daemon().pid());
    screen.awaits_line(&[&process]);
    a.reaches(b);
    let rates = screen.awaits("packets received again", busy);
    assert!(number(&rates[2]) < 1e9, "no wild rate: {rates:?}");
    screen.press(&["2"]);
    screen.awaits_line(&["Drop", " of ", "violations"]);

    // Enter on an interface shows its neighbours.
    screen.press(&["1", "Enter"]);
    screen.awaits_line(&[&a.v4(), "confirmed"]);

    // The terminal is as before.
    screen.press(&["q"]);
    screen.awaits_line(&["status 0"]);
    screen.awaits_line(&["the shell"]);
    assert_restored(b);
}

/// The settings of the terminal are as before.
fn assert_restored(host: &Host) {
    let [before, after] = ["before", "after"].map(|name| {
        eventually(SOON, "the settings of the terminal", || {
            let settings = std::fs::read_to_string(host.file(name)).ok()?;
            (!settings.is_empty()).then_some(settings)
        })
    });
    assert_eq!(before, after);
}

#[test]
fn ten_thousand_neighbours_scroll_and_the_daemon_still_answers() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let (a, b) = lab.two();
    let attacker = Attacker::new(a, b);
    let mut numbers = Numbers(11);
    b.hides_invented_neighbours();
    let _turn = Load::begin();
    // Each from a queue pair of its own. The victim may lose some.
    eventually(4 * SOON, "11,000 neighbours", || {
        attacker.flood(4000, |_| {
            let mut packet = attacker.packet(arp(&mut numbers, attacker.own));
            packet.source_qpn = numbers.next() as u32 & 0xff_ffff;
            packet.datagram()
        });
        (b.ask("neigh ib0").len() >= 11_000).then_some(())
    });
    let screen = Screen::open(b, 80, "top --view neighbours");
    let count = |lines: &[String]| -> Option<usize> {
        lines.get(2)?.split_whitespace().last()?.parse().ok()
    };
    screen.awaits("all neighbours", |lines| {
        count(lines).filter(|count| *count >= 10_000)
    });
    screen.press(&["F6", "Home", "Enter", "End"]);
    let last = screen.awaits("the last neighbour", |lines| {
        let line = lines.get(21)?.split_whitespace().next()?.to_owned();
        line.contains('.').then_some(line)
    });
    screen.press(&["F4", &last]);
    // The address may also be the start of others, and one of several of another neighbour.
    screen.awaits("that neighbour and few others", |lines| {
        let shown = |line: &String| line.split_whitespace().next() == Some(&*last);
        let matches: usize = lines[2]
            .split_once(" of ")?
            .0
            .rsplit(' ')
            .next()?
            .parse()
            .ok()?;
        (lines[4..].iter().any(shown) && matches < 200).then_some(())
    });
    a.reaches(b);
    screen.press(&["Enter", "F10"]);
    screen.awaits_line(&["status 0"]);
}

#[test]
fn without_a_terminal_or_a_daemon_there_is_one_sentence() {
    let Some(mut lab) = Lab::running_pair() else {
        return;
    };
    let a = lab.host(0);
    let done = a.ibtap("top");
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""));
    assert_eq!(
        done.err,
        "ibtap: \"ibtap top\" needs a terminal; to print text, add --batch\n"
    );
    let wrong = a.ibtap("top --batch --sort nosuch");
    assert!(
        wrong.code == Some(1) && wrong.err.contains("use one of NAME, STATE"),
        "{wrong:?}"
    );

    let batch = a.ibtap("top --batch -n 2 -d 0.1 --sort drops");
    assert_eq!(batch.code, Some(0), "{batch:?}");
    let lines: Vec<_> = batch
        .out
        .lines()
        .filter(|line| line.starts_with("ib0 "))
        .collect();
    assert_eq!(lines.len(), 2, "{}", batch.out);

    // A signal gives the terminal back.
    let screen = Screen::open(a, 80, "top");
    screen.awaits_line(&["ib0", "up"]);
    let pid = std::fs::read_to_string(a.file("pid")).expect("written before");
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a process id"), Signal::TERM).expect("it runs");
    screen.awaits_line(&["status 0"]);
    screen.awaits_line(&["the shell"]);
    assert_restored(a);
    drop(screen);

    // The user closes the terminal: the shell, which waits for the program, sees its status.
    let screen = Screen::open(a, 80, "top");
    screen.awaits_line(&["ib0", "up"]);
    drop(screen);
    let status = eventually(SOON, "the end without a terminal", || {
        let status = std::fs::read_to_string(a.file("closed")).ok()?;
        (!status.is_empty()).then_some(status)
    });
    assert_eq!(status, "0\n");

    a.stop();
    let away = a.ibtap("top --batch");
    assert_eq!(away.code, Some(3), "{away:?}");
    assert!(
        away.err.starts_with("ibtap: cannot reach ibtapd at"),
        "{away:?}"
    );
}
