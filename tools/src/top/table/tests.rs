//! Tests of the table.

use super::*;

const COLUMNS: &[Column] = &[
    Column::text("NAME", 8, 20, 0),
    Column::number("RATE", 6, 1),
    Column::number("TOTAL", 6, 2),
];

fn row(name: &str, rate: f64) -> Row {
    Row {
        key: name.to_owned(),
        cells: vec![Cell::text(name), Cell::Number(rate), Cell::Unknown],
        detail: String::new(),
        alert: false,
    }
}

fn table(count: usize) -> Table {
    let mut table = Table::new(COLUMNS, 0, false);
    table.fill(
        (0..count)
            .map(|i| row(&format!("ib{i}"), i as f64))
            .collect(),
    );
    table
}

fn shown(table: &mut Table, height: usize) -> Vec<String> {
    let rows = table.visible(height);
    let name =
        |(row, cursor): (&Row, bool)| format!("{}{}", row.key, if cursor { "*" } else { "" });
    rows.map(name).collect()
}

#[test]
fn the_screen_follows_the_cursor() {
    let mut table = table(10_000);
    assert_eq!(shown(&mut table, 3), ["ib0*", "ib1", "ib2"]);
    table.move_by(3);
    assert_eq!(shown(&mut table, 3), ["ib1", "ib2", "ib3*"]);
    table.move_pages(1);
    assert_eq!(shown(&mut table, 3), ["ib4", "ib5", "ib6*"]);
    table.move_by(isize::MAX);
    assert_eq!(shown(&mut table, 3), ["ib9997", "ib9998", "ib9999*"]);
    assert_eq!(shown(&mut table, 2), ["ib9998", "ib9999*"]);
    assert_eq!(shown(&mut table, 0), [""; 0]);
    table.move_by(isize::MIN);
    assert_eq!(shown(&mut table, 3), ["ib0*", "ib1", "ib2"]);
    table.fill(vec![]);
    assert_eq!(shown(&mut table, 3), [""; 0]);
    assert!(table.selected().is_none());
}

#[test]
fn a_larger_screen_shows_no_empty_lines_below_the_last_row() {
    let mut table = table(5);
    table.move_by(4);
    assert_eq!(shown(&mut table, 2), ["ib3", "ib4*"]);
    assert_eq!(shown(&mut table, 9).len(), 5);
}

#[test]
fn the_cursor_stays_on_its_row_and_in_the_first_place() {
    let mut table = table(4);
    table.sort_by(1);
    assert_eq!(shown(&mut table, 9), ["ib3*", "ib2", "ib1", "ib0"]);
    table.move_by(1);
    table.invert();
    assert_eq!(shown(&mut table, 9), ["ib0", "ib1", "ib2*", "ib3"]);
    table.set_filter("IB2|ib3".to_owned());
    assert_eq!(shown(&mut table, 9), ["ib2*", "ib3"]);
    assert_eq!((table.selected_count(), table.total()), (2, 4));
    table.fill(vec![row("ib2", 7.0), row("ib7", 8.0)]);
    assert_eq!(shown(&mut table, 9), ["ib2*"]);
}

#[test]
fn a_search_goes_around() {
    let mut table = table(20);
    assert!(table.search("B1", Search::Here));
    assert_eq!(table.selected().map(|row| &*row.key), Some("ib1"));
    assert!(table.search("ib1", Search::Next));
    assert_eq!(table.selected().map(|row| &*row.key), Some("ib10"));
    assert!(table.search("ib1", Search::Previous) && table.search("ib1", Search::Previous));
    assert_eq!(table.selected().map(|row| &*row.key), Some("ib19"));
    assert!(!table.search("ib20", Search::Here));
    assert!(!Table::new(COLUMNS, 0, false).search("ib", Search::Next));
}

#[test]
fn narrow_screens_have_fewer_columns_and_always_the_one_that_sorts() {
    let mut table = table(1);
    assert_eq!(table.layout(80), [(0, 20), (1, 6), (2, 6)]);
    assert_eq!(table.layout(22), [(0, 8), (1, 6), (2, 6)]);
    assert_eq!(table.layout(21), [(0, 14), (1, 6)]);
    assert_eq!(table.layout(3), [(0, 8)]);
    table.sort_by(2);
    assert_eq!(table.layout(21), [(0, 14), (2, 6)]);
}
