//! Aligned text for the output of clients.

use std::fmt::Write;

/// Indented lines `label:  value` with aligned values.
pub fn labelled(lines: &[(&str, String)]) -> String {
    let width = lines
        .iter()
        .map(|(label, _)| label.len())
        .max()
        .unwrap_or(0)
        + 1;
    lines
        .iter()
        .map(|(label, value)| format!("    {:<width$} {value}\n", format!("{label}:")))
        .collect()
}

/// A table with a heading; empty without rows. All columns except the last are padded.
pub fn columns<const N: usize>(
    heading: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let mut lines = vec![heading.map(str::to_owned)];
    lines.extend(rows);
    if lines.len() == 1 {
        return String::new();
    }
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.len());
        }
    }
    let mut text = String::new();
    for line in &lines {
        for (i, (cell, width)) in line.iter().zip(widths).enumerate() {
            let width = if i + 1 == N { 0 } else { width + 2 };
            // Writing to a string does not fail.
            let _ = write!(text, "{cell:<width$}");
        }
        text.push('\n');
    }
    text
}
