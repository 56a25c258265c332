//! The list of exceptions: one line each, sorted. The list only gets shorter: a violation that is not listed
//! is an error, and so is a line that is not needed.

use std::collections::{BTreeMap, BTreeSet};

use crate::Breach;

/// The list.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Exceptions {
    head: String,
    lines: BTreeMap<String, Option<String>>,
}

/// Result of the check of a tree.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Verdict {
    /// Violations without an exception, one sentence each.
    pub broken: Vec<String>,
    /// Lines that are not needed, as in the list.
    pub unneeded: Vec<String>,
    /// Lines with a number that is too high: the line, and its replacement.
    pub lower: Vec<(String, String)>,
}

impl Verdict {
    /// Whether there is nothing to change.
    pub fn is_good(&self) -> bool {
        self.broken.is_empty() && self.unneeded.is_empty() && self.lower.is_empty()
    }
}

impl Exceptions {
    /// Parses the list: comments first, then the lines, sorted.
    pub fn parse(text: &str) -> Result<Exceptions, String> {
        let mut read = Exceptions::default();
        let mut before = "";
        for line in text.lines() {
            if line.starts_with('#') || line.is_empty() {
                if !read.lines.is_empty() {
                    return Err(format!(
                        "{line:?} is between the lines; comments must be first"
                    ));
                }
                read.head += &format!("{line}\n");
                continue;
            }
            if line <= before {
                return Err(format!("{line:?} must be before {before:?}"));
            }
            before = line;
            let (key, value) = split(line)?;
            if read.lines.insert(key.clone(), value).is_some() {
                return Err(format!("{key:?} has two lines"));
            }
        }
        Ok(read)
    }

    /// Parses a list with the conflict marks of a merge: all lines of both sides; of two lines with the same
    /// key, the larger.
    pub fn parse_merged(text: &str) -> Result<Exceptions, String> {
        let marks = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"];
        let is_mark = |line: &str| marks.iter().any(|mark| line.starts_with(mark));
        let lines = text.lines().filter(|line| !is_mark(line));
        let (head, lines): (Vec<&str>, Vec<&str>) =
            lines.partition(|line| line.starts_with('#') || line.is_empty());
        let mut read = Exceptions {
            head: head.iter().map(|line| format!("{line}\n")).collect(),
            ..Exceptions::default()
        };
        for line in lines {
            let (key, value) = split(line)?;
            let number = |value: &Option<String>| value.as_ref()?.parse::<usize>().ok();
            let other = read.lines.get(&key);
            if other.is_none_or(|other| number(other) < number(&value)) {
                read.lines.insert(key, value);
            }
        }
        Ok(read)
    }

    /// The list as text.
    pub fn text(&self) -> String {
        let lines = self.lines.iter();
        let lines: BTreeSet<String> = lines.map(|(key, value)| line(key, value)).collect();
        let lines: Vec<String> = lines.into_iter().map(|line| line + "\n").collect();
        self.head.clone() + &lines.concat()
    }

    /// The place in the order for a module without one.
    pub fn place(&self, module: &str) -> Option<&str> {
        self.lines.get(&format!("module {module}"))?.as_deref()
    }

    /// Compares the violations of a tree with the list.
    pub fn judge(&self, breaches: &[Breach]) -> Verdict {
        let mut verdict = Verdict::default();
        for breach in breaches {
            let Some(value) = self.lines.get(&breach.key) else {
                verdict.broken.push(breach.sentence.clone());
                continue;
            };
            let allowed: Option<usize> = value.as_ref().and_then(|value| value.parse().ok());
            let (Some(number), Some(allowed)) = (breach.number, allowed) else {
                continue;
            };
            if number > allowed {
                let sentence = &breach.sentence;
                let more =
                    format!("{sentence} The list allows {allowed}; this number must not grow.");
                verdict.broken.push(more);
            } else if number + breach.slack < allowed {
                let now = line(&breach.key, value);
                let then = line(&breach.key, &Some(number.to_string()));
                verdict.lower.push((now, then));
            }
        }
        let needed: BTreeSet<&str> = breaches.iter().map(|breach| breach.key.as_str()).collect();
        let unneeded = self.lines.iter();
        let unneeded = unneeded.filter(|(key, _)| !needed.contains(key.as_str()));
        verdict.unneeded = unneeded.map(|(key, value)| line(key, value)).collect();
        verdict
    }

    /// Removes lines that are not needed, and lowers numbers. Adds nothing.
    pub fn tighten(&mut self, breaches: &Verdict) {
        for line in &breaches.unneeded {
            if let Ok((key, _)) = split(line) {
                self.lines.remove(&key);
            }
        }
        for (_, line) in &breaches.lower {
            if let Ok((key, value)) = split(line) {
                self.lines.insert(key, value);
            }
        }
    }
}

/// Key and value of a line.
fn split(line: &str) -> Result<(String, Option<String>), String> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["room" | "use", _, "->", _] => Ok((line.to_owned(), None)),
        ["daemon" | "file", of, number] if number.parse::<usize>().is_ok() => {
            Ok((format!("{} {of}", words[0]), Some(number.to_owned())))
        }
        ["module", module, place] => Ok((format!("module {module}"), Some(place.to_owned()))),
        _ => Err(format!("{line:?} is not an exception of any rule")),
    }
}

fn line(key: &str, value: &Option<String>) -> String {
    match value {
        Some(value) => format!("{key} {value}"),
        None => key.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breach(key: &str, number: Option<usize>) -> Breach {
        Breach {
            key: key.into(),
            number,
            slack: 2,
            sentence: format!("{key} is broken."),
        }
    }

    const LIST: &str = "# Why.\n\nfile a.rs 800\nmodule m port\nuse a -> b\n";

    #[test]
    fn a_list_is_read_and_written_as_it_is() {
        let list = Exceptions::parse(LIST).unwrap();
        assert_eq!(list.text(), LIST);
        assert_eq!(list.place("m"), Some("port"));
    }

    #[test]
    fn a_list_that_is_not_sorted_or_holds_something_else_is_refused() {
        for text in [
            "use b -> a\nuse a -> b\n",
            "use a -> b\nuse a -> b\n",
            "use a -> b\n# late\n",
            "use a b\n",
            "file a.rs long\n",
            "file a.rs 800\nfile a.rs 900\n",
        ] {
            assert!(Exceptions::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn both_sides_of_a_merge_are_read() {
        let text = "# Why.\n\n<<<<<<< main\nfile a.rs 800\n=======\nfile a.rs 810\nfile b.rs 900\n\
                    >>>>>>> mine\nuse a -> b\n";
        assert!(Exceptions::parse(text).is_err());
        let read = Exceptions::parse_merged(text).unwrap();
        let both = "# Why.\n\nfile a.rs 810\nfile b.rs 900\nuse a -> b\n";
        assert_eq!(read.text(), both);
    }

    #[test]
    fn only_what_is_in_the_list_may_be_broken() {
        let list = Exceptions::parse(LIST).unwrap();
        let mut breaches = vec![
            breach("file a.rs", Some(799)),
            breach("module m", None),
            breach("use a -> b", None),
        ];
        assert!(list.judge(&breaches).is_good());
        breaches.push(breach("use b -> c", None));
        breaches[0].number = Some(801);
        let broken = list.judge(&breaches).broken;
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken[0].contains("allows 800"), "{broken:?}");
        assert!(broken[1].contains("b -> c"), "{broken:?}");
    }

    #[test]
    fn what_nothing_needs_has_to_go_and_tightening_adds_nothing() {
        let mut list = Exceptions::parse(LIST).unwrap();
        let breaches = [
            breach("file a.rs", Some(710)),
            breach("use a -> b", None),
            breach("use b -> c", None),
        ];
        let verdict = list.judge(&breaches);
        assert_eq!(verdict.unneeded, ["module m port"]);
        let lower = ("file a.rs 800".to_owned(), "file a.rs 710".to_owned());
        assert_eq!(verdict.lower, [lower]);
        list.tighten(&verdict);
        assert_eq!(list.text(), "# Why.\n\nfile a.rs 710\nuse a -> b\n");
        let verdict = list.judge(&breaches);
        assert_eq!(
            (
                verdict.broken.len(),
                verdict.unneeded.len(),
                verdict.lower.len()
            ),
            (1, 0, 0)
        );
    }
}
