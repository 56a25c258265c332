//! The kernel's queues of packets between namespaces: one for each processor, for all tests together.

use std::fs;

/// Packets that found such a queue full, of any test, since the machine started: the second number, in hexadecimal
/// digits, of each processor's line.
pub fn backlog_drops() -> u64 {
    let lines = fs::read_to_string("/proc/net/softnet_stat").expect("the kernel has it");
    let drops = |line: &str| {
        let word = line.split_whitespace().nth(1).expect("a second number");
        u64::from_str_radix(word, 16).expect("a number")
    };
    lines.lines().map(drops).sum()
}
