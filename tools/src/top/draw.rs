//! The screen: lines of text with few colours, cut at the right edge, never wrapped.

mod canvas;
mod overlay;

use std::time::Duration;

use control::output::printable;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use self::canvas::Canvas;
pub use self::canvas::Look;
use super::cell::Cell;
use super::model::{Model, Overlay};
use super::table::{Column, Row};
use super::view::{View, sums};

/// Draws the screen.
pub fn draw(model: &mut Model, now: Duration, buffer: &mut Buffer, look: Look) {
    let area = buffer.area;
    let mut canvas = Canvas { buffer, area, look };
    let (top, bottom) = match area.height {
        0..5 => (0, 0),
        5..8 => (1, 1),
        _ => (3, 2),
    };
    if top > 0 {
        title(model, &mut canvas, 0);
    }
    if top > 1 {
        rates(model, now, &mut canvas, 1);
        tabs(model, &mut canvas, 2);
    }
    let table = top..area.height.saturating_sub(bottom);
    draw_table(model, &mut canvas, table.start, table.end);
    match &model.overlay {
        Overlay::Help(line) => overlay::help(&mut canvas, table.start, table.end, *line),
        Overlay::Sort(place) => {
            let place = *place;
            overlay::menu(model, &mut canvas, table.start, table.end, place);
        }
        Overlay::None | Overlay::Search(_) | Overlay::Filter(_) => {}
    }
    if bottom > 1 {
        status(model, &mut canvas, area.height - 2);
    }
    if bottom > 0 {
        overlay::keys(model, &mut canvas, area.height - 1);
    }
}

/// The same as text, with all rows.
pub fn text(model: &mut Model, now: Duration, width: u16) -> String {
    let rows = u16::try_from(model.table().selected_count()).unwrap_or(u16::MAX - 4);
    let area = Rect::new(0, 0, width, rows + 4);
    let mut buffer = Buffer::empty(area);
    let mut canvas = Canvas {
        buffer: &mut buffer,
        area,
        look: Look::new(false),
    };
    title(model, &mut canvas, 0);
    rates(model, now, &mut canvas, 1);
    let (name, count, seconds) = (model.view.names().0, count(model), now.as_secs_f64());
    let heading = format!("{name}, after {seconds:.1} s: {count}");
    canvas.put(0, 2, &heading, width, Style::new());
    draw_table(model, &mut canvas, 3, area.height);
    let lines = buffer.content().chunks(usize::from(width).max(1));
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", line.trim_end())
    };
    lines.map(line).collect()
}

/// The daemon, and the interval.
fn title(model: &Model, canvas: &mut Canvas<'_>, y: u16) {
    let daemon = match &model.daemon {
        Some(daemon) => format!(
            "ibtapd {} process {}",
            printable(&daemon.version),
            daemon.pid
        ),
        None => "ibtapd".to_owned(),
    };
    let end = canvas.put(0, y, &daemon, canvas.area.width, canvas.look.bold());
    match model.paused {
        true => canvas.right(end, y, "paused", canvas.look.alert()),
        false => {
            let text = format!("every {} s", model.interval.as_secs_f64());
            canvas.right(end, y, &text, Style::new());
        }
    }
}

/// The rates of all interfaces together, or since when the daemon is away.
fn rates(model: &Model, now: Duration, canvas: &mut Canvas<'_>, y: u16) {
    if let Some(since) = model.away {
        let seconds = now.saturating_sub(since).as_secs();
        let text = format!("ibtapd is away for {seconds} s; trying again");
        return canvas.line(y, &text, canvas.look.away());
    }
    let sums = sums(model.history.latest());
    let show = |value: Option<f64>| Cell::number(value).show();
    let rx = sums.map(|sums| sums.rx);
    let tx = sums.map(|sums| sums.tx);
    let drops = sums.map(|sums| sums.drops);
    let bits = [rx, tx].map(|of| show(of.map(|of| of[0])));
    let packets = [rx, tx].map(|of| show(of.map(|of| of[1])));
    let text = match canvas.area.width {
        0..72 => format!(
            "bit/s rx {} tx {}, drop/s {}",
            bits[0],
            bits[1],
            show(drops)
        ),
        _ => format!(
            "rx {:>5} bit/s {:>5} packet/s   tx {:>5} bit/s {:>5} packet/s   {:>5} drop/s",
            bits[0],
            packets[0],
            bits[1],
            packets[1],
            show(drops)
        ),
    };
    let lost = drops > Some(0.0);
    let style = if lost {
        canvas.look.alert()
    } else {
        Style::new()
    };
    canvas.put(0, y, &text, canvas.area.width, style);
}

/// The views; the number of rows.
fn tabs(model: &mut Model, canvas: &mut Canvas<'_>, y: u16) {
    let (view, width) = (model.view, canvas.area.width);
    let count = count(model);
    let is_wide = usize::from(width) > 63 + count.chars().count();
    let mut x = 0;
    for (at, tab) in View::ALL.into_iter().enumerate() {
        let (wide, narrow) = tab.names();
        let style = match tab == view {
            true => canvas.look.label(),
            false => Style::new(),
        };
        let (text, space) = match is_wide {
            true => (format!("{} {wide}", at + 1), 2),
            false => (format!("{}{narrow}", at + 1), 1),
        };
        x = canvas.put(x, y, &text, width, style).saturating_add(space);
    }
    canvas.right(x, y, &count, Style::new());
}

/// The interface of the view, the number of rows, and the filter.
fn count(model: &mut Model) -> String {
    let subject = model.subject().map(|name| printable(name) + " ");
    let table = model.table();
    let (filter, selected, total) = (table.filter(), table.selected_count(), table.total());
    let count = match filter.is_empty() {
        true => format!("{total}"),
        false => format!("{selected} of {total} {}", printable(filter)),
    };
    subject.unwrap_or_default() + &count
}

/// The heading, and the rows from line `start` on, before line `end`.
fn draw_table(model: &mut Model, canvas: &mut Canvas<'_>, start: u16, end: u16) {
    if start >= end {
        return;
    }
    let look = canvas.look;
    let table = model.table();
    let (layout, columns) = (table.layout(canvas.area.width), table.columns());
    let (sort, _) = table.sorted_by();
    canvas.bar(start, look.heading());
    let mut x = 0;
    for &(at, width) in &layout {
        let style = if at == sort {
            look.sorts()
        } else {
            look.heading()
        };
        let title = aligned(&columns[at], columns[at].title, width);
        canvas.put(x, start, &title, width, style);
        x += width + 1;
    }
    let height = usize::from(end - start - 1);
    if table.selected_count() == 0 && height > 0 {
        let text = if table.total() == 0 {
            "none"
        } else {
            "none with this filter"
        };
        canvas.put(0, start + 1, text, canvas.area.width, look.dim());
    }
    let rows = table.visible(height);
    for (y, (row, is_at_cursor)) in (start + 1..).zip(rows) {
        if is_at_cursor {
            canvas.bar(y, look.cursor());
        }
        draw_row(canvas, y, row, (columns, &layout), is_at_cursor);
    }
}

fn draw_row(
    canvas: &mut Canvas<'_>,
    y: u16,
    row: &Row,
    (columns, layout): (&[Column], &[(usize, u16)]),
    is_at_cursor: bool,
) {
    let look = canvas.look;
    let mut x = 0;
    for (place, &(at, width)) in layout.iter().enumerate() {
        let cell = &row.cells[at];
        let style = match cell {
            _ if is_at_cursor => look.cursor(),
            _ if row.alert && place == 0 => look.alert(),
            Cell::Unknown => look.dim(),
            Cell::Number(0.0) => look.dim(),
            _ => Style::new(),
        };
        canvas.put(
            x,
            y,
            &aligned(&columns[at], &cell.show(), width),
            width,
            style,
        );
        x += width + 1;
    }
}

fn aligned(column: &Column, text: &str, width: u16) -> String {
    let width = usize::from(width);
    match column.right {
        true => format!("{text:>width$}"),
        false => text.to_owned(),
    }
}

/// More about the selected row, or a message.
fn status(model: &mut Model, canvas: &mut Canvas<'_>, y: u16) {
    if let Some(message) = model.message.clone() {
        return canvas.line(y, &message, canvas.look.alert());
    }
    if let Some(row) = model.table().selected() {
        canvas.line(y, &row.detail, Style::new());
    }
}
