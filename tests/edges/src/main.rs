//! Prints violations of the repository's rules. `--update` removes lines from the list of exceptions that are
//! not needed any more; it adds none. It also accepts a list with the conflict marks of a merge.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use edges::exceptions::Exceptions;

const LIST: &str = "tests/edges/exceptions.txt";

fn main() -> ExitCode {
    let update = match env::args().nth(1).as_deref() {
        None => false,
        Some("--update") => true,
        Some(_) => {
            eprintln!("usage: edges [--update]");
            return ExitCode::from(2);
        }
    };
    match run(update) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn run(update: bool) -> Result<bool, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tree = edges::read(&root).map_err(|e| format!("the repository: {e}"))?;
    let list = root.join(LIST);
    let text = fs::read_to_string(&list).map_err(|e| format!("{LIST}: {e}"))?;
    let parse = match update {
        true => Exceptions::parse_merged,
        false => Exceptions::parse,
    };
    let mut exceptions = parse(&text).map_err(|e| format!("{LIST}: {e}"))?;
    let mut verdict = edges::check(&tree, &exceptions);
    if update {
        exceptions.tighten(&verdict);
        fs::write(&list, exceptions.text()).map_err(|e| format!("{LIST}: {e}"))?;
        verdict = edges::check(&tree, &exceptions);
    }
    for sentence in &verdict.broken {
        println!("{sentence}");
    }
    if !verdict.broken.is_empty() {
        println!(
            "A line of {LIST} as in [] would allow the violation; the list must only get shorter."
        );
    }
    if !verdict.unneeded.is_empty() || !verdict.lower.is_empty() {
        println!("{LIST} can be shorter; run `scripts/edges --update` to");
    }
    for line in &verdict.unneeded {
        println!("    remove the line: {line}");
    }
    for (now, then) in &verdict.lower {
        println!("    change the line: {now}, to {then}");
    }
    Ok(verdict.is_good())
}
