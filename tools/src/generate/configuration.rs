//! Man pages of section 5 from the example configurations, whose comments describe every key.

use std::fs;
use std::io;
use std::path::Path;

/// A configuration file: its page, the program that reads it, and the example with every key.
const FILES: [(&str, &str, &str); 2] = [
    (
        "ibtapd.toml",
        "ibtapd",
        include_str!("../../../docs/ibtapd.example.toml"),
    ),
    (
        "ibtap-em.toml",
        "ibtap-em",
        include_str!("../../../docs/ibtap-em.example.toml"),
    ),
];

/// Writes a page for each configuration file.
pub(super) fn write(directory: &Path, source: &str) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    for (name, program, example) in FILES {
        let text = page(name, program, example, source);
        fs::write(directory.join(format!("{name}.5")), text)?;
    }
    Ok(())
}

fn page(name: &str, program: &str, example: &str, source: &str) -> String {
    let mut page = format!(
        ".TH {title} 5 \"\" \"{source}\" \"IP over RDMA fabrics\"\n\
         .SH NAME\n{file} \\- configuration of {program}\n.SH DESCRIPTION\n\
         The file has the format TOML. Each entry below is a key with its default, or with an example value.\n\
         .PP\n",
        title = name.to_uppercase().replace('-', "\\-"),
        file = escaped(name),
        program = escaped(program),
    );
    let mut comment = Vec::new();
    // Whether the last line belongs to a value of several lines.
    let mut literal = false;
    for line in example.lines().map(str::trim_end) {
        let part = match Part::of(line) {
            Part::Meaning(_) if literal => Part::Rest(line),
            part => part,
        };
        if literal && !matches!(part, Part::Rest(_)) {
            page.push_str(".EE\n.RE\n");
            literal = false;
        }
        match part {
            Part::Nothing => paragraph(&mut page, &mut comment),
            Part::Comment(text) => comment.push(text),
            Part::Table(table) => {
                // A comment directly above a table describes the table.
                page.push_str(&format!(
                    ".SH \"{}\"\n",
                    escaped(table).replace('"', "\\(dq")
                ));
                paragraph(&mut page, &mut comment);
            }
            Part::Key(setting, meaning) => {
                paragraph(&mut page, &mut comment);
                page.push_str(&format!(".TP\n\\fB{}\\fR\n", escaped(setting)));
                // .TP needs a text.
                page.push_str(&format!("\\&{}\n", escaped(meaning)));
            }
            Part::Meaning(text) => page.push_str(&format!("{}\n", escaped(text))),
            Part::Rest(text) => {
                if !literal {
                    page.push_str(".RS\n.EX\n");
                    literal = true;
                }
                page.push_str(&format!("{}\n", escaped(text)));
            }
        }
    }
    if literal {
        page.push_str(".EE\n.RE\n");
    }
    paragraph(&mut page, &mut comment);
    page.push_str(&format!(
        ".SH FILES\n.I /etc/ibtap/{file}\n.SH \"SEE ALSO\"\n.BR {program} (8),\n.BR ibtap (8)\n",
        file = escaped(name),
        program = escaped(program),
    ));
    page
}

/// A line of an example.
enum Part<'a> {
    Nothing,
    Comment(&'a str),
    Table(&'a str),
    /// `key = value`, also commented out, and the comment behind it.
    Key(&'a str, &'a str),
    /// A further line of that comment.
    Meaning(&'a str),
    /// Part of a value of several lines.
    Rest(&'a str),
}

impl Part<'_> {
    fn of(line: &str) -> Part<'_> {
        // With more than one blank, a comment is an example: of another file, or of a value of several lines.
        let bare = line.strip_prefix('#').unwrap_or(line);
        let bare = bare.strip_prefix(' ').unwrap_or(bare);
        let is_key = bare.split_once(" = ").is_some_and(|(key, _)| {
            key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') && !key.is_empty()
        });
        if line.is_empty() {
            Part::Nothing
        } else if is_key {
            let (setting, meaning) = bare.split_once(" # ").unwrap_or((bare, ""));
            Part::Key(setting.trim(), meaning.trim())
        } else if line.starts_with('#') {
            Part::Comment(bare)
        } else if line.starts_with('[') {
            Part::Table(line)
        } else if let Some(meaning) = line.trim_start().strip_prefix("# ") {
            Part::Meaning(meaning)
        } else {
            Part::Rest(line)
        }
    }
}

fn paragraph(page: &mut String, comment: &mut Vec<&str>) {
    if comment.is_empty() {
        return;
    }
    page.push_str(".PP\n");
    for line in comment.drain(..) {
        page.push_str(&format!("{}\n", escaped(line)));
    }
}

/// A text in roff: no character is a request or an escape.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}
