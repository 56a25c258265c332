//! Generates man pages and shell completions of `ibtap`, `ibtapd`, `ibtap-em`, `ibtap-fs` and `ibtap-peer`
//! from their command lines, and man pages of their configuration files.

mod configuration;

use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::aot::{Bash, Fish, Generator, Zsh, generate_to};
use clap_mangen::Man;
use control::config::args::{Args, FsArgs};
use ibtap_em::args::Cli as EmCli;
use tools::peer::cli::Cli as PeerCli;

use crate::cli::Cli;
use crate::output::Failure;

const DAEMON_SECTIONS: &str = r#".SH "EXIT STATUS"
.TP
.B 0
Success, or a clean shutdown after SIGTERM or SIGINT.
.TP
.B 1
The command line or the configuration is wrong.
.TP
.B 2
The kernel or the fabric reported an error.
.SH FILES
.TP
.I /etc/ibtap/ibtapd.toml
The configuration file of the packaged unit
.IR ibtapd.service .
.TP
.I /run/ibtap/ibtapd.sock
The control socket. Its protocol is varlink. Its owner and its group may connect.
.SH EXAMPLES
.TP
.B ibtapd \-\-underlay eth0
Creates ib0 over eth0.
.TP
.B ibtapd \-\-underlay eth0 \-\-child 0x8001,0x8002
Creates ib0, and ib0.8001 and ib0.8002 in two other partitions.
.TP
.B ibtapd \-\-underlay eth1 \-\-name ib1 \-\-socket /run/ibtap/ib1.sock
Runs a second daemon on the same machine.
.TP
.B ibtapd \-\-underlay eth0 \-\-gid ipv4 \-\-peers 192.0.2.2,192.0.2.3
Uses an underlay without IPv6 and multicast.
.SH "SEE ALSO"
.BR ibtap (8),
.BR ibtapd.toml (5),
.BR ibtap\-service (7),
.BR ibtap\-troubleshooting (7),
.BR ip\-link (8)
"#;

const TOOL_SECTIONS: &str = r#".SH "EXIT STATUS"
.TP
.B 0
Success.
.TP
.B 1
The command line is wrong, or the daemon serves no such interface. ping: no peer answers. sa: there is no such record.
.TP
.B 2
The daemon, the system or the subnet administrator reported an error. reload: a change needs a restart.
.TP
.B 3
No daemon answers. sa: there is no subnet manager, or no answer.
.PP
Three commands have other exit statuses:
.BR ibtap\-decode (8),
.BR ibtap\-doctor (8),
.BR ibtap\-bugreport (8).
.SH FILES
.TP
.I /run/ibtap/ibtapd.sock
The control socket of the daemon. Its protocol is varlink.
.SH "SEE ALSO"
.BR ibtapd (8),
.BR ip\-link (8),
.BR rdma (8)
"#;

const EM_SECTIONS: &str = r#".SH "EXIT STATUS"
.TP
.B 0
Success, or a clean shutdown after SIGTERM or SIGINT.
.TP
.B 1
The command line or the configuration is wrong, or the switch or port does not exist.
.TP
.B 2
The manager or the system reported an error. For example, another manager uses the socket or the state
directory, or the state is damaged.
.TP
.B 3
No manager answers.
.SH FILES
.TP
.I /etc/ibtap/ibtap\-em.toml
The configuration: the switches and their members.
.TP
.I /var/lib/ibtap\-em/state
The LID and the address of each port. The manager writes the file atomically and uses no damaged file.
.TP
.I /run/ibtap/ibtap\-em.sock
The control socket of the manager. Its protocol is varlink.
.TP
.I /run/ibtap/ibtapd.sock
The control socket of this node's ibtapd, which connects the manager to the fabric.
.SH EXAMPLES
.TP
.B ibtap\-em run \-\-config em.toml \-\-check\-config
Checks the file and prints an error with its place.
.TP
.B ibtap\-em port storage
Prints the virtual ports of a switch and their states.
.TP
.B ibtap\-em explain storage 52:54:00:12:34:56 \-\-vid 5
Prints the destination of frames to this address, with the reason.
.SH "SEE ALSO"
.BR ibtap\-em.toml (5),
.BR ibtapd (8),
.BR ibtap (8)
"#;

const FS_SECTIONS: &str = r#".SH FILES
.TP
.I MOUNTPOINT/ib0/mode, pkey, parent, umcast, mtu, address, broadcast, ...
The files of
.I /sys/class/net/ib0
of the kernel's ib_ipoib; mode, mtu and umcast are writable. If several network namespaces have an
interface of this name, the directory is
.IR NETNS:ib0 .
.TP
.I MOUNTPOINT/ib0/create_child, delete_child
Writing a P_Key adds or removes a child: decimal, hexadecimal with 0x, or octal with 0.
.TP
.I MOUNTPOINT/ib0/statistics/*
Counters.
.TP
.I MOUNTPOINT/debug/ib0_mcg, ib0_path
Multicast groups and paths, in the format of debugfs for ib_ipoib.
.TP
.I MOUNTPOINT/infiniband/soft_eth0/...
The files of
.I /sys/class/infiniband
for each port of the software fabric.
.TP
.I /run/ibtap/ibtapd.sock
The control socket of the daemon.
.SH ERRORS
Reads and writes fail with the error numbers of the kernel's ib_ipoib.
.TP
.B EINVAL
The text is not a number, the number is out of range, the text is not a mode (a mode needs a line feed, which
.B echo
writes), or the interface cannot have the mode.
.TP
.B ENOTUNIQ
The parent or a child has this P_Key.
.TP
.B ENODEV
The child does not exist, or the interface or the daemon ended after the file was opened.
.TP
.B EACCES
The writer is not root, or the file is read-only.
.TP
.B EPERM
The writer is root without CAP_NET_ADMIN.
.TP
.B EBUSY
Another program holds the TAP, or the daemon is busy.
.TP
.B ETIMEDOUT
The daemon does not answer.
.SH "EXIT STATUS"
.TP
.B 0
The file system was unmounted, or SIGTERM or SIGINT ended the program.
.TP
.B 1
The command line is wrong, or the mount point is missing, not a directory, or in use by another ibtap\-fs.
A mount that a killed ibtap\-fs left there is unmounted first.
.TP
.B 2
The kernel reported an error:
.I /dev/fuse
is missing, or the right to mount, CAP_SYS_ADMIN.
.SH EXAMPLES
.TP
.B mkdir /run/ibtap-fs; ibtap\-fs /run/ibtap-fs &
.TP
.B echo 0x8001 > /run/ibtap-fs/ib0/create_child
Adds ib0.8001.
.SH "SEE ALSO"
.BR ibtap (8),
.BR ibtapd (8),
.BR ip\-link (8)
"#;

const PEER_SECTIONS: &str = r#".SH "EXIT STATUS"
.TP
.B 0
Every message arrived unchanged.
.TP
.B 1
The command line is wrong.
.TP
.B 2
A message was wrong or did not arrive, or the underlay cannot be used. One line on standard error has the
reason.
.SH EXAMPLES
.TP
.B ibtap\-peer rc\-pingpong \-\-underlay eth0 \-\-gid ipv4 \-\-size 65536 \-\-connect 192.0.2.2
Exchanges messages with
.B ibv_rc_pingpong \-d rxe0 \-g 1 \-s 65536 \-n 10
on the host 192.0.2.2.
.TP
.B ibtap\-peer mckey \-\-underlay eth0 \-\-gid ipv4 \-\-group 239.1.2.3
Receives the datagrams of
.B mckey \-m 239.1.2.3 \-b 192.0.2.2 \-s \-C 10 \-S 100
on the host 192.0.2.2.
.SH "SEE ALSO"
.BR ibtap (8),
.BR ibv_rc_pingpong (1),
.BR ibv_ud_pingpong (1),
.BR ucmatose (1),
.BR udaddy (1),
.BR mckey (1)
"#;

const DECODE_SECTIONS: &str = r#".SH "EXIT STATUS"
.TP
.B 0
Every verifiable ICRC is correct, and no packet is malformed.
.TP
.B 1
An ICRC is bad, a packet is malformed, or the command line is wrong.
.TP
.B 2
The file cannot be read.
.SH "SEE ALSO"
.BR ibtap (8),
.BR tcpdump (8),
.BR tshark (1)
"#;

const DOCTOR_SECTIONS: &str = r#".SH "EXIT STATUS"
.TP
.B 0
No fault keeps ibtap from working.
.TP
.B 1
The command line is wrong, or the daemon serves no such interface.
.TP
.B 2
A fault keeps ibtap from working; a line that begins with FAIL describes it.
.SH "SEE ALSO"
.BR ibtap (8),
.BR ibtapd (8),
.BR nft (8)
"#;

const BUGREPORT_SECTIONS: &str = r#".SH "EXIT STATUS"
.TP
.B 0
The archive is complete, or lists what is missing.
.TP
.B 1
The command line is wrong.
.TP
.B 2
The file cannot be written, or a signal interrupted the program.
.SH "SEE ALSO"
.BR ibtap (8),
.BR ibtap\-doctor (8),
.BR ibtap\-troubleshooting (7)
"#;

/// Writes all pages and completions below `directory`, which gets the layout of `/usr/share`.
pub fn write(directory: &Path) -> Result<(), Failure> {
    try_write(directory).map_err(|error| {
        Failure::System(format!("cannot write to {}: {error}", directory.display()))
    })
}

fn try_write(directory: &Path) -> io::Result<()> {
    let manuals = directory.join("man/man8");
    fs::create_dir_all(&manuals)?;
    configuration::write(&directory.join("man/man5"), &source())?;
    let programs = [
        (Cli::command(), TOOL_SECTIONS),
        (Args::command(), DAEMON_SECTIONS),
        (EmCli::command(), EM_SECTIONS),
        (FsArgs::command(), FS_SECTIONS),
        (PeerCli::command(), PEER_SECTIONS),
    ];
    for (mut command, sections) in programs {
        command.build();
        pages(&command, sections, &manuals)?;
        completion(
            Bash,
            &command,
            &directory.join("bash-completion/completions"),
        )?;
        completion(Zsh, &command, &directory.join("zsh/site-functions"))?;
        completion(Fish, &command, &directory.join("fish/vendor_completions.d"))?;
    }
    Ok(())
}

/// Writes the page of a program and a page for each of its commands.
fn pages(command: &Command, sections: &str, directory: &Path) -> io::Result<()> {
    page(command, sections, directory)?;
    for sub in command.get_subcommands().filter(|s| !s.is_hide_set()) {
        // The other commands are requests to the daemon and share its exit statuses.
        let sections = match sub.get_name() {
            "decode" => DECODE_SECTIONS,
            "doctor" => DOCTOR_SECTIONS,
            "bugreport" => BUGREPORT_SECTIONS,
            _ => sections,
        };
        pages(sub, sections, directory)?;
    }
    Ok(())
}

fn page(command: &Command, sections: &str, directory: &Path) -> io::Result<()> {
    // The page of a command has the name of its program, too: ibtap-show(8).
    let name = command
        .get_display_name()
        .unwrap_or(command.get_name())
        .to_owned();
    // The page has a section for the exit statuses.
    let command = command.clone().after_help("");
    let has_commands = command.get_subcommands().any(|s| !s.is_hide_set());
    let man = Man::new(command)
        .title(name.to_uppercase())
        .section("8")
        .source(source())
        .manual("IP over RDMA fabrics");
    let mut roff = Vec::new();
    man.render_title(&mut roff)?;
    man.render_name_section(&mut roff)?;
    man.render_synopsis_section(&mut roff)?;
    man.render_description_section(&mut roff)?;
    man.render_options_section(&mut roff)?;
    if has_commands {
        man.render_subcommands_section(&mut roff)?;
    }
    roff.extend_from_slice(sections.as_bytes());
    fs::write(directory.join(format!("{name}.8")), roff)
}

/// The source of the pages, at their foot.
fn source() -> String {
    format!("ibtap {}", env!("CARGO_PKG_VERSION"))
}

fn completion(shell: impl Generator, command: &Command, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = command.clone();
    let name = command.get_name().to_owned();
    generate_to(shell, &mut command, name, directory).map(drop)
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use super::*;

    #[test]
    fn every_program_and_command_has_a_page_that_man_accepts() {
        let directory = tempfile::tempdir().unwrap();
        try_write(directory.path()).unwrap();
        let manuals = directory.path().join("man/man8");
        let mut names: Vec<_> = fs::read_dir(&manuals)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        for expected in [
            "ibtap.8",
            "ibtapd.8",
            "ibtap-em.8",
            "ibtap-em-run.8",
            "ibtap-em-explain.8",
            "ibtap-fs.8",
            "ibtap-show.8",
            "ibtap-stats.8",
            "ibtap-log.8",
            "ibtap-child.8",
            "ibtap-child-add.8",
            "ibtap-pkey-set.8",
            "ibtap-coalesce.8",
            "ibtap-decode.8",
            "ibtap-doctor.8",
            "ibtap-top.8",
            "ibtap-peer.8",
            "ibtap-peer-rc-pingpong.8",
        ] {
            assert!(names.iter().any(|n| n == expected), "{expected}: {names:?}");
        }
        assert!(!names.iter().any(|n| n.contains("generate")), "{names:?}");
        for name in names {
            let page = fs::read_to_string(manuals.join(&name)).unwrap();
            assert!(page.contains(".SH \"EXIT STATUS\""), "{name}");
            lint(&manuals.join(&name));
        }
    }

    #[test]
    fn commands_that_need_no_daemon_have_their_own_exit_statuses() {
        let directory = tempfile::tempdir().unwrap();
        try_write(directory.path()).unwrap();
        let page = |name: &str| {
            let file = format!("man/man8/{name}.8");
            fs::read_to_string(directory.path().join(file)).unwrap()
        };
        for name in ["decode", "doctor", "bugreport"] {
            let of_command = page(&format!("ibtap-{name}"));
            assert!(!of_command.contains("No daemon answers"), "{of_command}");
            let reference = format!("\n.BR ibtap\\-{name} (8)");
            assert!(page("ibtap").contains(&reference), "{name}");
        }
        assert!(page("ibtap-bugreport").contains("a signal interrupted"));
    }

    #[test]
    fn configuration_files_have_a_page_with_every_key() {
        let directory = tempfile::tempdir().unwrap();
        try_write(directory.path()).unwrap();
        let manuals = directory.path().join("man/man5");
        for (file, words) in [
            (
                "ibtapd.toml.5",
                &[
                    "\n.SH \"[[ipoib]]\"\n",
                    "\n.TP\n\\fBmode = \"datagram\"\\fR\n\\&or \"connected\"",
                    "\n.SH \"[port.\\(dqmlx5_0/1\\(dq]\"\n.PP\n",
                    "    0x8001,\n",
                ][..],
            ),
            (
                "ibtap-em.toml.5",
                &[
                    "\n.TP\n\\fBpriority = 5\\fR\n\\&0 to 15;",
                    "\n.TP\n\\fBport = \"eth0\"\\fR\n",
                ],
            ),
        ] {
            let page = fs::read_to_string(manuals.join(file)).unwrap();
            for word in words {
                assert!(page.contains(word), "{file} lacks {word}: {page}");
            }
            lint(&manuals.join(file));
        }
    }

    #[test]
    fn every_key_of_a_page_is_a_key_of_its_table() {
        let directory = tempfile::tempdir().unwrap();
        try_write(directory.path()).unwrap();
        let page = |file: &str| {
            let page = fs::read_to_string(directory.path().join("man/man5").join(file)).unwrap();
            page.replace("\\-", "-").replace("\\(dq", "\"")
        };
        type Parser = fn(&str) -> Option<String>;
        let daemon: Parser = |text| {
            let error = control::config::Config::parse(text, "t.toml").err()?;
            Some(error.to_string())
        };
        let manager: Parser = |text| {
            let error = ibtap_em::config::Config::parse(text, "t.toml").err()?;
            Some(error.to_string())
        };
        for (file, parser, keys) in [
            ("ibtapd.toml.5", daemon, 70),
            ("ibtap-em.toml.5", manager, 25),
        ] {
            let (page, mut table, mut seen) = (page(file), "", 0);
            for line in page.lines() {
                assert!(!line.trim_start().starts_with("# "), "{file}: {line:?}");
                if let Some(heading) = line.strip_prefix(".SH \"") {
                    table = heading.strip_suffix('"').unwrap();
                }
                let key = line
                    .strip_prefix("\\fB")
                    .map(|l| l.split(' ').next().unwrap());
                if let Some(key) = key {
                    // The table may be incomplete and the value wrong: these are other errors.
                    let error = parser(&format!("{table}\n{key} = 0\n")).unwrap_or_default();
                    assert!(!error.contains("unknown key"), "{file}: {error}");
                    seen += 1;
                }
            }
            assert!(seen >= keys, "{file} has {seen} keys");
        }
        let daemon = page("ibtapd.toml.5");
        let inspect = "take the address of a live host;\n\"enforce\": drop them, too\n";
        assert!(daemon.contains(inspect), "{daemon}");
        let manager = page("ibtap-em.toml.5");
        let nodes = "of their nodes:\n    [[vnic]]\n    name = \"vnic0\"\n";
        assert!(manager.contains(nodes), "{manager}");
    }

    /// Checks the page with groff, if groff is installed.
    fn lint(page: &Path) {
        let Ok(done) = Process::new("groff")
            .args(["-man", "-ww", "-Tutf8", "-z"])
            .arg(page)
            .output()
        else {
            eprintln!("groff is not installed: {} is not linted", page.display());
            return;
        };
        let complaints = String::from_utf8_lossy(&done.stderr);
        assert!(complaints.is_empty(), "{complaints}");
    }

    #[test]
    fn completions_for_three_shells_and_all_programs() {
        let directory = tempfile::tempdir().unwrap();
        try_write(directory.path()).unwrap();
        for (file, word) in [
            ("bash-completion/completions/ibtap.bash", "stats"),
            ("bash-completion/completions/ibtap.bash", "--rx-usecs"),
            ("bash-completion/completions/ibtapd.bash", "--underlay"),
            ("zsh/site-functions/_ibtap", "neigh"),
            ("zsh/site-functions/_ibtap", "child"),
            ("zsh/site-functions/_ibtapd", "--link-mtu"),
            (
                "bash-completion/completions/ibtap-em.bash",
                "--check-config",
            ),
            ("bash-completion/completions/ibtap-fs.bash", "--private"),
            ("zsh/site-functions/_ibtap-em", "counters"),
            ("fish/vendor_completions.d/ibtap.fish", "mcg"),
            ("fish/vendor_completions.d/ibtapd.fish", "pkey"),
            ("fish/vendor_completions.d/ibtap-peer.fish", "rc-pingpong"),
        ] {
            let text = fs::read_to_string(directory.path().join(file)).unwrap();
            assert!(text.contains(word), "{file} lacks {word}");
        }
    }
}
