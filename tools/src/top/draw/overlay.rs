//! The keys, the help, and the menu of columns.

use control::output::printable;
use ratatui::style::Style;

use super::canvas::Canvas;
use crate::top::model::{Model, Overlay};

const HELP: [&str; 19] = [
    "F1 h ?      this help",
    "Tab 1 to 5  other view",
    "Up Down PgUp PgDn Home End  scroll",
    "Left Right  neighbours of another",
    "            interface",
    "Enter       neighbours of this interface",
    "F3 /        search; n N: next, previous",
    "F4 \\        filter: TEXT or TEXT|TEXT",
    "F6 > <      choose the column that sorts",
    "I           invert the order",
    "Space       pause",
    "+ -         longer, shorter interval",
    "Ctrl-L      draw the screen again",
    "Ctrl-Z      stop until fg",
    "F10 q       quit",
    "",
    "Rates are per second; k, M, G are",
    "1000, 1000000, 1000000000.",
    "-: not known, or not known yet.",
];

const KEYS: [(&str, &str); 9] = [
    ("F1", "Help"),
    ("F3", "Search"),
    ("F4", "Filter"),
    ("F6", "Sort"),
    ("F10", "Quit"),
    ("Tab", "View"),
    ("I", "Invert"),
    ("Space", "Pause"),
    ("+-", "Interval"),
];

/// The keys, or the text that is being typed.
pub fn keys(model: &mut Model, canvas: &mut Canvas<'_>, y: u16) {
    let prompt = match &model.overlay {
        Overlay::Search(text) => Some(("Search: ", text, [("F3", "Next"), ("Esc", "Done")])),
        Overlay::Filter(text) => Some(("Filter: ", text, [("Enter", "Done"), ("Esc", "Clear")])),
        _ => None,
    };
    let keys: &[_] = prompt.as_ref().map_or(&KEYS, |(_, _, keys)| keys);
    let mut x = 0;
    for (key, label) in keys {
        let needed = key.len() + label.len() + 1;
        if usize::from(x) + needed > usize::from(canvas.area.width) {
            break;
        }
        x = canvas.put(x, y, key, canvas.area.width, canvas.look.bold());
        x = canvas.put(
            x,
            y,
            &format!("{label} "),
            canvas.area.width,
            canvas.look.label(),
        );
    }
    if let Some((name, text, _)) = prompt {
        // The end of a long text is visible.
        let room = usize::from(canvas.area.width.saturating_sub(x)).saturating_sub(name.len() + 2);
        let text = printable(text);
        let skip = text.chars().count().saturating_sub(room);
        let end: String = text.chars().skip(skip).collect();
        canvas.put(
            x,
            y,
            &format!(" {name}{end}_"),
            canvas.area.width,
            Style::new(),
        );
    }
}

pub fn help(canvas: &mut Canvas<'_>, start: u16, end: u16, first: usize) {
    let height = usize::from(end.saturating_sub(start));
    let first = first.min(HELP.len().saturating_sub(height));
    let lines = HELP.iter().skip(first).chain(std::iter::repeat(&""));
    for (y, line) in (start..end).zip(lines) {
        canvas.line(y, line, Style::new());
    }
}

/// The menu of columns.
pub fn menu(model: &mut Model, canvas: &mut Canvas<'_>, start: u16, end: u16, place: usize) {
    const WIDTH: u16 = 16;
    if start >= end {
        return;
    }
    let look = canvas.look;
    let line = |text: &str| format!("{text:<16}");
    canvas.put(0, start, &line("Sort by"), WIDTH, look.sorts());
    let height = usize::from(end - start - 1);
    let first = (place + 1).saturating_sub(height);
    let columns = model.table().columns().iter().enumerate().skip(first);
    for (y, (at, column)) in (start + 1..end).zip(columns) {
        let style = if at == place {
            look.cursor()
        } else {
            Style::new()
        };
        canvas.put(0, y, &line(column.title), WIDTH, style);
    }
}
