//! A table: rows that are sorted, filtered, searched and scrolled.

use std::ops::Range;

use super::cell::Cell;

/// A column.
#[derive(Debug)]
pub struct Column {
    /// Title, also its name in the menu and for `--sort`.
    pub title: &'static str,
    /// Least width.
    pub least: u16,
    /// Largest useful width.
    pub most: u16,
    /// Whether values are at the right edge: numbers.
    pub right: bool,
    /// The narrower the screen, the fewer ranks are shown; 0 is always shown.
    pub rank: u8,
}

impl Column {
    /// A column of texts.
    pub const fn text(title: &'static str, least: u16, most: u16, rank: u8) -> Column {
        Column {
            title,
            least,
            most,
            right: false,
            rank,
        }
    }

    /// A column of numbers or times.
    pub const fn number(title: &'static str, width: u16, rank: u8) -> Column {
        Column {
            title,
            least: width,
            most: width,
            right: true,
            rank,
        }
    }
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The row's identity, by which the cursor follows the row.
    pub key: String,
    /// A value for each column.
    pub cells: Vec<Cell>,
    /// More about the row, for the line below the table.
    pub detail: String,
    /// Whether the row needs attention.
    pub alert: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Table {
    columns: &'static [Column],
    rows: Vec<Row>,
    /// The rows that the filter selects, in the order of the screen.
    order: Vec<usize>,
    sort: usize,
    descending: bool,
    filter: String,
    /// A place in `order`.
    cursor: usize,
    /// The place in `order` of the first visible row.
    top: usize,
    /// The number of visible rows.
    height: usize,
}

impl Table {
    /// An empty table, sorted by a column.
    pub fn new(columns: &'static [Column], sort: usize, descending: bool) -> Table {
        Table {
            columns,
            rows: Vec::new(),
            order: Vec::new(),
            sort,
            descending,
            filter: String::new(),
            cursor: 0,
            top: 0,
            height: 1,
        }
    }

    /// The columns.
    pub fn columns(&self) -> &'static [Column] {
        self.columns
    }

    /// Number of rows, with those that the filter hides.
    pub fn total(&self) -> usize {
        self.rows.len()
    }

    /// Number of rows that the filter selects.
    pub fn selected_count(&self) -> usize {
        self.order.len()
    }

    /// The column that sorts, and whether its largest value is first.
    pub fn sorted_by(&self) -> (usize, bool) {
        (self.sort, self.descending)
    }

    /// The filter.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Replaces the rows.
    pub fn fill(&mut self, rows: Vec<Row>) {
        let followed = self.followed();
        self.rows = rows;
        self.arrange(followed.as_deref());
    }

    /// Sorts by a column: texts from A, numbers from the largest.
    pub fn sort_by(&mut self, column: usize) {
        let followed = self.followed();
        self.sort = column;
        self.descending = self.columns[column].right;
        self.arrange(followed.as_deref());
    }

    /// Inverts the order.
    pub fn invert(&mut self) {
        let followed = self.followed();
        self.descending = !self.descending;
        self.arrange(followed.as_deref());
    }

    /// Shows only rows that contain the text, or one of several texts with `|` between them.
    pub fn set_filter(&mut self, filter: String) {
        let followed = self.followed();
        self.filter = filter;
        self.arrange(followed.as_deref());
    }

    /// The row at the cursor.
    pub fn selected(&self) -> Option<&Row> {
        self.order.get(self.cursor).map(|at| &self.rows[*at])
    }

    /// Moves the cursor by rows.
    pub fn move_by(&mut self, rows: isize) {
        let last = self.order.len().saturating_sub(1);
        self.cursor = self.cursor.saturating_add_signed(rows).min(last);
    }

    /// Moves the cursor by pages.
    pub fn move_pages(&mut self, pages: isize) {
        let page = isize::try_from(self.height).unwrap_or(isize::MAX);
        self.move_by(page.saturating_mul(pages));
    }

    /// Moves the cursor to the next row that contains the text, from the cursor's row on, or behind it. Returns
    /// whether there is such a row.
    pub fn search(&mut self, text: &str, from: Search) -> bool {
        let wanted = text.to_lowercase();
        let count = self.order.len();
        let hit = |place: &usize| self.rows[self.order[*place]].contains(&wanted);
        let found = match from {
            Search::Here => (0..count).map(|i| (self.cursor + i) % count).find(hit),
            Search::Next => (1..=count).map(|i| (self.cursor + i) % count).find(hit),
            Search::Previous => (1..=count)
                .map(|i| (self.cursor + count - i) % count)
                .find(hit),
        };
        self.cursor = found.unwrap_or(self.cursor);
        found.is_some()
    }

    /// The visible rows on a screen with so many rows, each with the mark of the cursor. Scrolls to the cursor.
    pub fn visible(&mut self, height: usize) -> impl Iterator<Item = (&Row, bool)> {
        self.height = height.max(1);
        let most = self.order.len().saturating_sub(height);
        let first = (self.cursor + 1).saturating_sub(self.height);
        self.top = self.top.clamp(first, self.cursor.max(first)).min(most);
        let range: Range<usize> = self.top..self.order.len().min(self.top + height);
        let rows = self.order[range.clone()].iter().map(|at| &self.rows[*at]);
        rows.zip(range.map(|place| place == self.cursor))
    }

    /// The columns for a screen, each with its width. There is a space between two columns.
    pub fn layout(&self, width: u16) -> Vec<(usize, u16)> {
        let rank = |at: usize| match at == self.sort {
            true => 0,
            false => self.columns[at].rank,
        };
        let mut by_rank: Vec<usize> = (0..self.columns.len()).collect();
        by_rank.sort_by_key(|at| rank(*at));
        let mut widths = vec![None; self.columns.len()];
        // The first column needs no space before it.
        let mut room = i32::from(width) + 1;
        for &at in &by_rank {
            let needed = i32::from(self.columns[at].least) + 1;
            if needed > room && rank(at) > 0 {
                break;
            }
            widths[at] = Some(self.columns[at].least);
            room -= needed;
        }
        for &at in &by_rank {
            let column = &self.columns[at];
            if let Some(width) = &mut widths[at] {
                let more = (column.most - column.least).min(u16::try_from(room).unwrap_or(0));
                *width += more;
                room -= i32::from(more);
            }
        }
        let shown = widths.into_iter().enumerate();
        shown.filter_map(|(at, width)| Some((at, width?))).collect()
    }

    /// The key of the row at the cursor. A cursor in the first row stays there: it shows what is first.
    fn followed(&self) -> Option<String> {
        let row = self.selected().filter(|_| self.cursor > 0)?;
        Some(row.key.clone())
    }

    fn arrange(&mut self, followed: Option<&str>) {
        let wanted = self.filter.to_lowercase();
        let wanted: Vec<&str> = wanted.split('|').filter(|text| !text.is_empty()).collect();
        let is_wanted = |row: &Row| {
            let mut texts = wanted.iter();
            wanted.is_empty() || texts.any(|text| row.contains(text))
        };
        let all = self.rows.iter().enumerate();
        let kept = all.filter(|(_, row)| is_wanted(row)).map(|(at, _)| at);
        self.order = kept.collect();
        let (rows, sort, descending) = (&self.rows, self.sort, self.descending);
        self.order.sort_by(|a, b| {
            let order = rows[*a].cells[sort].order(&rows[*b].cells[sort]);
            if descending { order.reverse() } else { order }
        });
        let is_followed = |at: &usize| Some(rows[*at].key.as_str()) == followed;
        if let Some(place) = self.order.iter().position(is_followed) {
            self.cursor = place;
        }
        self.move_by(0);
    }
}

/// Where a search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// In the cursor's row.
    Here,
    /// Below the cursor's row.
    Next,
    /// Above the cursor's row, upwards.
    Previous,
}

impl Row {
    /// Whether the row has this text in lower case.
    fn contains(&self, wanted: &str) -> bool {
        let has = |text: &str| text.to_lowercase().contains(wanted);
        let texts = self.cells.iter().filter_map(|cell| match cell {
            Cell::Text(text) => Some(text),
            _ => None,
        });
        texts.into_iter().any(|text| has(text)) || has(&self.detail)
    }
}

#[cfg(test)]
mod tests;
