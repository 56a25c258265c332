//! Keys, as in htop.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{INTERVALS, Model, Overlay};
use crate::top::table::Search;
use crate::top::view::View;

/// What the program must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Draw.
    Draw,
    /// Draw everything again: something else has written to the screen.
    Redraw,
    /// Stop until the shell continues the program.
    Suspend,
    /// End.
    Quit,
}

impl Model {
    /// Takes a key.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Draw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Quit,
                KeyCode::Char('l') => Action::Redraw,
                KeyCode::Char('z') => Action::Suspend,
                _ => Action::Draw,
            };
        }
        match std::mem::replace(&mut self.overlay, Overlay::None) {
            Overlay::None => return self.key_of_table(key.code),
            Overlay::Help(line) => self.key_of_help(line, key.code),
            Overlay::Search(text) => self.key_of_search(text, key.code),
            Overlay::Filter(text) => self.key_of_filter(text, key.code),
            Overlay::Sort(place) => self.key_of_menu(place, key.code),
        }
        Action::Draw
    }

    fn key_of_table(&mut self, code: KeyCode) -> Action {
        match code {
            KeyCode::Char('q') | KeyCode::F(10) => return Action::Quit,
            KeyCode::F(1) | KeyCode::Char('h' | '?') => self.overlay = Overlay::Help(0),
            KeyCode::F(3) | KeyCode::Char('/') => self.overlay = Overlay::Search(String::new()),
            KeyCode::F(4) | KeyCode::Char('\\') => {
                self.overlay = Overlay::Filter(self.table().filter().to_owned());
            }
            KeyCode::F(6) | KeyCode::Char('>' | '<' | '.' | ',') => {
                self.overlay = Overlay::Sort(self.table().sorted_by().0);
            }
            KeyCode::Char('I') => self.table().invert(),
            KeyCode::Char('n') => self.search_again(Search::Next),
            KeyCode::Char('N') => self.search_again(Search::Previous),
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('+') => self.change_interval(true),
            KeyCode::Char('-') => self.change_interval(false),
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(View::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='9') => {
                let view = View::ALL.get(digit as usize - '1' as usize);
                view.into_iter().for_each(|view| self.leave_for(*view));
            }
            KeyCode::Enter if self.view == View::Interfaces => self.leave_for(View::Neighbours),
            KeyCode::Left | KeyCode::Char('[') => self.focus_beside(-1),
            KeyCode::Right | KeyCode::Char(']') => self.focus_beside(1),
            code => self.scroll(code),
        }
        Action::Draw
    }

    fn scroll(&mut self, code: KeyCode) {
        let table = self.table();
        match code {
            KeyCode::Up => table.move_by(-1),
            KeyCode::Down => table.move_by(1),
            KeyCode::PageUp => table.move_pages(-1),
            KeyCode::PageDown => table.move_pages(1),
            KeyCode::Home => table.move_by(isize::MIN),
            KeyCode::End => table.move_by(isize::MAX),
            _ => {}
        }
    }

    /// The help ends with any key that does not scroll.
    fn key_of_help(&mut self, line: usize, code: KeyCode) {
        match code {
            KeyCode::Up | KeyCode::PageUp => self.overlay = Overlay::Help(line.saturating_sub(1)),
            KeyCode::Down | KeyCode::PageDown => self.overlay = Overlay::Help(line + 1),
            _ => {}
        }
    }

    fn key_of_search(&mut self, mut text: String, code: KeyCode) {
        let from = match code {
            KeyCode::Esc | KeyCode::Enter => return,
            KeyCode::F(3) => Search::Next,
            code => {
                edit(&mut text, code);
                self.scroll(code);
                Search::Here
            }
        };
        self.searched.clone_from(&text);
        self.overlay = Overlay::Search(text);
        self.search_again(from);
    }

    fn search_again(&mut self, from: Search) {
        let text = self.searched.clone();
        let found = text.is_empty() || self.table().search(&text, from);
        self.message = (!found).then(|| format!("no row has {text:?}"));
    }

    fn key_of_filter(&mut self, mut text: String, code: KeyCode) {
        match code {
            KeyCode::Enter => {}
            KeyCode::Esc => self.table().set_filter(String::new()),
            code => {
                edit(&mut text, code);
                self.table().set_filter(text.clone());
                self.scroll(code);
                self.overlay = Overlay::Filter(text);
            }
        }
    }

    fn key_of_menu(&mut self, place: usize, code: KeyCode) {
        let last = self.table().columns().len() - 1;
        let place = match code {
            KeyCode::Enter | KeyCode::F(6) => return self.table().sort_by(place),
            KeyCode::Esc | KeyCode::F(10) | KeyCode::Char('q') => return,
            KeyCode::Up => place.saturating_sub(1),
            KeyCode::Down => (place + 1).min(last),
            KeyCode::Home | KeyCode::PageUp => 0,
            KeyCode::End | KeyCode::PageDown => last,
            _ => place,
        };
        self.overlay = Overlay::Sort(place);
    }

    fn turn(&mut self, by: usize) {
        let at = (self.view as usize + by) % View::ALL.len();
        self.leave_for(View::ALL[at]);
    }

    /// Changes the view. The neighbours are those of the interface at the cursor.
    fn leave_for(&mut self, view: View) {
        if self.view == View::Interfaces {
            let selected = self.table().selected().map(|row| row.key.clone());
            self.focus = selected.or(self.focus.take());
        }
        self.show(view);
    }

    /// Shows the neighbours of the next interface, or of the one before.
    fn focus_beside(&mut self, by: isize) {
        let Some(subject) = self.subject() else {
            return;
        };
        let names: Vec<&str> = self.interfaces().map(|(name, _)| name).collect();
        let at = names.iter().position(|name| *name == subject).unwrap_or(0);
        let at = at.saturating_add_signed(by).min(names.len() - 1);
        if names[at] != subject {
            self.focus(names[at].to_owned());
        }
    }

    fn change_interval(&mut self, longer: bool) {
        let now = self.interval;
        let mut intervals = INTERVALS.map(Duration::from_millis).into_iter();
        let next = match longer {
            true => intervals.find(|interval| *interval > now),
            false => intervals.rfind(|interval| *interval < now),
        };
        self.interval = next.unwrap_or(now);
        self.due = Duration::ZERO;
    }
}

/// Adds a character, or removes the last.
fn edit(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Char(c) => text.push(c),
        KeyCode::Backspace => drop(text.pop()),
        _ => {}
    }
}
