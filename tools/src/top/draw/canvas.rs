//! Styles, and lines of text that are cut at the right edge.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// The styles of the parts of a screen.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    color: bool,
}

impl Look {
    /// Colours, or bold and reversed text only (<https://no-color.org>).
    pub fn new(color: bool) -> Look {
        Look { color }
    }

    fn either(self, color: Style, plain: Modifier) -> Style {
        match self.color {
            true => color,
            false => Style::new().add_modifier(plain),
        }
    }

    pub fn heading(self) -> Style {
        self.either(
            Style::new().fg(Color::Black).bg(Color::Green),
            Modifier::REVERSED,
        )
    }

    pub fn sorts(self) -> Style {
        let plain = Modifier::REVERSED | Modifier::BOLD | Modifier::UNDERLINED;
        self.either(Style::new().fg(Color::Black).bg(Color::Cyan), plain)
    }

    pub fn cursor(self) -> Style {
        self.either(
            Style::new().fg(Color::Black).bg(Color::Cyan),
            Modifier::REVERSED,
        )
    }

    pub fn alert(self) -> Style {
        self.either(
            Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            Modifier::BOLD,
        )
    }

    pub fn away(self) -> Style {
        let plain = Modifier::REVERSED | Modifier::BOLD;
        self.either(Style::new().fg(Color::White).bg(Color::Red), plain)
    }

    pub fn label(self) -> Style {
        self.either(
            Style::new().fg(Color::Black).bg(Color::Cyan),
            Modifier::REVERSED,
        )
    }

    pub fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

/// Part of a screen.
pub struct Canvas<'b> {
    pub buffer: &'b mut Buffer,
    pub area: Rect,
    pub look: Look,
}

impl Canvas<'_> {
    /// Writes a text of at most `width` columns; `~` marks a cut. Returns the column behind it.
    pub fn put(&mut self, x: u16, y: u16, text: &str, width: u16, style: Style) -> u16 {
        let width = width.min(self.area.width.saturating_sub(x));
        if width == 0 || y >= self.area.height {
            return x;
        }
        let needed = Span::raw(text).width();
        let (end, _) = self.buffer.set_stringn(x, y, text, width.into(), style);
        if needed > width.into() {
            self.buffer.set_stringn(x + width - 1, y, "~", 1, style);
            return x + width;
        }
        end
    }

    /// Writes a text over the whole line.
    pub fn line(&mut self, y: u16, text: &str, style: Style) {
        self.bar(y, style);
        self.put(0, y, text, self.area.width, style);
    }

    /// Clears a line in a style.
    pub fn bar(&mut self, y: u16, style: Style) {
        let width = usize::from(self.area.width);
        self.put(0, y, &" ".repeat(width), self.area.width, style);
    }

    /// Writes a text at the right edge, if there is room behind column `from`.
    pub fn right(&mut self, from: u16, y: u16, text: &str, style: Style) {
        let width = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
        let x = self.area.width.saturating_sub(width);
        if x > from {
            self.put(x, y, text, width, style);
        }
    }
}
