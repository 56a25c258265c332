//! The blocks of the pages in `docs`.

use std::path::{Path, PathBuf};

/// The pages.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The blocks of a page in a language, in order.
///
/// # Panics
/// If the page does not exist.
pub fn blocks(page: &Path, language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(page).expect("a page");
    blocks_of(&page, language)
}

/// The commands of a page.
///
/// # Panics
/// If the page does not exist.
pub fn commands(name: &str) -> Vec<String> {
    blocks(&folder().join(name), "sh")
}

/// The blocks in a language below a heading `##` of a page.
///
/// # Panics
/// If the page or the heading does not exist.
pub fn below(name: &str, heading: &str, language: &str) -> Vec<String> {
    let page = std::fs::read_to_string(folder().join(name)).expect("a page");
    let (_, rest) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("{name} has no heading {heading:?}"));
    blocks_of(rest.split("\n## ").next().expect("a first piece"), language)
}

/// The commands below a heading `##` of a page.
///
/// # Panics
/// If the page, the heading or one of the blocks does not exist.
pub fn commands_of<const N: usize>(name: &str, heading: &str) -> [String; N] {
    let commands = below(name, heading, "sh");
    commands.try_into().expect("that many blocks")
}

fn blocks_of(text: &str, language: &str) -> Vec<String> {
    text.split(&format!("```{language}\n"))
        .skip(1)
        .map(|rest| rest.split("```").next().expect("a first piece").to_owned())
        .collect()
}
