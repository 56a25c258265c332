//! Limits of the length of files and of the methods of `Daemon`.

use crate::words::{Word, end_of_group, shipped};
use crate::{Breach, Tree};

/// Maximum number of lines of a file.
pub const LINES: usize = 700;

/// Maximum number of methods in `impl Daemon`, all files together.
pub const METHODS: usize = 60;

/// Maximum number of files with an `impl Daemon`.
pub const FILES: usize = 3;

/// Generated files: any length.
pub const GENERATED: &[&str] = &[
    "fabric/src/verbs/sys/bindings.rs",
    "fabric/src/verbs/sys/layout.rs",
];

/// Files that are too long, and excess methods of `Daemon`.
pub fn breaches(tree: &Tree) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, text) in tree {
        let lines = text.lines().count();
        if lines > LINES && !GENERATED.contains(&path.as_str()) {
            let key = format!("file {path}");
            found.push(Breach {
                sentence: format!(
                    "{path} has {lines} lines; the maximum is {LINES}. [{key} {lines}]"
                ),
                key,
                number: Some(lines),
                slack: lines,
            });
        }
    }
    let shipped = tree.iter().filter(|(path, _)| path.starts_with("src/"));
    let of_daemon: Vec<usize> = shipped
        .filter_map(|(_, text)| methods(&shipped_words(text)))
        .collect();
    let methods: usize = of_daemon.iter().sum();
    let files = of_daemon.len();
    for (number, limit, what, slack) in
        [(methods, METHODS, "methods", 9), (files, FILES, "files", 2)]
    {
        if number > limit {
            let key = format!("daemon {what}");
            found.push(Breach {
                sentence: format!(
                    "src: `impl Daemon` has {number} {what}; the maximum is {limit}. [{key} {number}]"
                ),
                key,
                number: Some(number),
                slack,
            });
        }
    }
    found
}

fn shipped_words(text: &str) -> Vec<Word> {
    match text.contains("Daemon") {
        true => shipped(text),
        false => Vec::new(),
    }
}

/// Number of functions in a file's `impl Daemon`; `None` without one.
fn methods(words: &[Word]) -> Option<usize> {
    let mut found = None;
    for at in 0..words.len() {
        let begins = words[at].text == "impl"
            && at
                .checked_sub(1)
                .is_none_or(|before| ["}", ";", "]", "{"].contains(&words[before].text.as_str()));
        let Some(open) = (at..words.len())
            .find(|&i| words[i].text == "{")
            .filter(|_| begins)
        else {
            continue;
        };
        let head: Vec<&str> = words[at + 1..open]
            .iter()
            .map(|word| word.text.as_str())
            .collect();
        // `Daemon`, `Daemon<...>`, `<...> Daemon`, `Trait for Daemon`.
        let of = head
            .iter()
            .rposition(|word| *word == "for")
            .map_or(0, |at| at + 1);
        let generic = head[of..].first() == Some(&"<");
        let name = match generic {
            true => head
                .iter()
                .position(|word| *word == ">")
                .map_or(0, |at| at + 1),
            false => of,
        };
        if head.get(name) != Some(&"Daemon") {
            continue;
        }
        let body = &words[open + 1..end_of_group(words, open) - 1];
        let mut at = 0;
        let mut count = 0;
        while at < body.len() {
            count += usize::from(body[at].text == "fn");
            at = match body[at].text.as_str() {
                "{" | "(" | "[" => end_of_group(body, at),
                _ => at + 1,
            };
        }
        *found.get_or_insert(0) += count;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_found() {
        let line = "x\n";
        let mut tree = Tree::new();
        tree.insert("a.rs".into(), line.repeat(LINES));
        tree.insert(GENERATED[0].into(), line.repeat(2 * LINES));
        assert_eq!(breaches(&tree), []);
        tree.insert("b.rs".into(), line.repeat(LINES + 1));
        let found = breaches(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].key.as_str(), found[0].number),
            ("file b.rs", Some(LINES + 1))
        );
    }

    #[test]
    fn methods_of_the_daemon_are_counted() {
        let text = "impl Daemon { fn a(f: fn()) { fn inner() {} } pub fn b() -> impl Daemon {} }
            impl Drop for Daemon { fn drop(&mut self) {} }
            impl<T> Daemon<T> { const fn c() {} }
            impl Daemons { fn no() {} }
            impl From<Daemon> for Other { fn no() {} }
            #[cfg(test)] impl Daemon { fn no() {} }";
        assert_eq!(methods(&shipped(text)), Some(4));
        assert_eq!(methods(&shipped("impl Other { fn no() {} }")), None);
    }

    #[test]
    fn too_many_methods_in_too_many_files_are_found() {
        let text = format!("impl Daemon {{ {} }}", "fn a() {} ".repeat(METHODS / FILES));
        let tree = |files: usize| -> Tree {
            let files = 0..files;
            files
                .map(|i| (format!("src/{i}.rs"), text.clone()))
                .collect()
        };
        assert_eq!(breaches(&tree(FILES)), []);
        let keys: Vec<String> = breaches(&tree(FILES + 1))
            .into_iter()
            .map(|b| b.key)
            .collect();
        assert_eq!(keys, ["daemon methods", "daemon files"]);
    }
}
