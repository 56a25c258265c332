//! Which programs have a port's umad open.

use std::fs;
use std::path::Path;

/// At most this many are named.
const NAMED: usize = 4;

/// The other programs with `node` open, as far as this process may see: `opensm (412)`.
pub fn holders(node: &Path) -> Vec<String> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id();
    let pids = processes.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        (pid != own).then_some(pid)
    });
    let holding = pids.filter(|pid| has_open(*pid, node));
    holding
        .map(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{} ({pid})", name.trim())
        })
        .take(NAMED)
        .collect()
}

fn has_open(pid: u32, node: &Path) -> bool {
    fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|descriptors| {
        let mut links = descriptors.flatten();
        links.any(|entry| fs::read_link(entry.path()).is_ok_and(|target| target == node))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_with_the_node_open_is_named() {
        let directory = std::env::temp_dir().join(format!("holders-{}", std::process::id()));
        fs::write(&directory, "").unwrap();
        let node = fs::canonicalize(&directory).unwrap();
        let file = fs::File::open(&node).unwrap();
        assert!(holders(&node).is_empty(), "this process does not count");
        let mut sleeping = std::process::Command::new("sleep")
            .arg("60")
            .stdin(file)
            .spawn()
            .unwrap();
        // The child has its name and its descriptors after its exec.
        let pid = sleeping.id();
        let expected = [format!("sleep ({pid})")];
        let found = (0..500).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            holders(&node) == expected
        });
        sleeping.kill().unwrap();
        sleeping.wait().unwrap();
        fs::remove_file(&directory).unwrap();
        assert!(found);
    }
}
