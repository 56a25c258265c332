//! The terminal: keys, signals and answers become inputs of the model, and the model is drawn.

use std::io::{self, IsTerminal, stdout};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Instant;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Terminal};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::draw::{Look, draw};
use super::model::{Action, Model};
use super::poll::Poller;
use super::sample::{Answer, Query};
use crate::output::Failure;

/// What the main thread waits for.
enum Input {
    Terminal(Event),
    Answer(Answer),
    Signal(i32),
    /// The terminal cannot be read.
    Failed(io::Error),
}

/// The terminal in raw mode, with another screen than the shell's. Dropping the value gives the terminal back.
///
/// Nothing here prints errors of the terminal: `eprintln!` panics if the terminal was closed, and a panic aborts the
/// program. For this reason, ratatui's `init` and `restore` are not used: they print, also in their panic hook.
struct Screen(Option<DefaultTerminal>);

impl Screen {
    fn enter() -> io::Result<Screen> {
        let mut screen = Screen(None);
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen)?;
        screen.0 = Some(Terminal::new(CrosstermBackend::new(stdout()))?);
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Dropping the value prints an error if it cannot show the cursor.
        if let Some(mut terminal) = self.0.take()
            && terminal.show_cursor().is_err()
        {
            std::mem::forget(terminal);
        }
        leave();
    }
}

fn leave() {
    // Without a terminal there is nothing to restore.
    let _ = ratatui::try_restore();
    let _ = execute!(stdout(), Show);
}

/// A panic aborts a release build, which drops nothing.
fn leave_at_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        leave();
        report(panic);
    }));
}

/// Runs until the user or a signal ends the program.
pub fn run(mut model: Model, poller: Poller, start: Instant, look: Look) -> Result<(), Failure> {
    let (sender, inputs) = mpsc::channel();
    let queries = answer_queries(poller, sender.clone());
    report_signals(sender.clone()).map_err(|e| failure("catch signals", &e))?;
    leave_at_panics();
    let screen = Screen::enter().map_err(|e| failure("use the terminal", &e))?;
    read_keys(sender);
    let ended = follow(&mut model, screen, &inputs, &queries, (start, look));
    match ended {
        // Its user has closed the terminal. Every call of it fails now, perhaps before SIGHUP arrives.
        Err(_) if !stdout().is_terminal() => Err(Failure::Closed),
        ended => ended.map_err(|e| failure("use the terminal", &e)),
    }
}

fn failure(what: &str, error: &io::Error) -> Failure {
    Failure::System(format!("cannot {what}: {error}"))
}

fn follow(
    model: &mut Model,
    mut screen: Screen,
    inputs: &Receiver<Input>,
    queries: &Sender<Query>,
    (start, look): (Instant, Look),
) -> io::Result<()> {
    loop {
        let now = start.elapsed();
        if let Some(query) = model.query(now) {
            queries.send(query).map_err(io::Error::other)?;
        }
        if let Some(terminal) = &mut screen.0 {
            terminal.draw(|frame| draw(model, now, frame.buffer_mut(), look))?;
        }
        let input = match model.wait(now) {
            Some(left) => match inputs.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(input) => input,
            },
            None => inputs.recv().map_err(io::Error::other)?,
        };
        let action = match input {
            Input::Terminal(Event::Key(key)) => model.key(key),
            Input::Terminal(_) => Action::Draw,
            Input::Answer(answer) => {
                model.take(start.elapsed(), answer);
                Action::Draw
            }
            // The shell may have changed the terminal while the program was stopped.
            Input::Signal(SIGCONT) => Action::Redraw,
            Input::Signal(_) => Action::Quit,
            Input::Failed(error) => return Err(error),
        };
        match action {
            Action::Draw => {}
            Action::Quit => return Ok(()),
            Action::Redraw | Action::Suspend => {
                drop(screen);
                if action == Action::Suspend {
                    kill_process(getpid(), Signal::TSTP)?;
                }
                screen = Screen::enter()?;
            }
        }
    }
}

/// A thread that asks the daemon, which may take long to answer.
fn answer_queries(mut poller: Poller, answers: Sender<Input>) -> Sender<Query> {
    let (queries, asked) = mpsc::channel::<Query>();
    thread::spawn(move || {
        for query in asked {
            let answer = Input::Answer(poller.answer(&query));
            if answers.send(answer).is_err() {
                return;
            }
        }
    });
    queries
}

/// A thread for signals that end the program, or continue it.
fn report_signals(inputs: Sender<Input>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCONT])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if inputs.send(Input::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// A thread that reads the terminal; it ends with the program.
fn read_keys(inputs: Sender<Input>) {
    thread::spawn(move || {
        loop {
            let input = match event::read() {
                Ok(event) => Input::Terminal(event),
                Err(error) => Input::Failed(error),
            };
            let is_over = matches!(input, Input::Failed(_));
            if inputs.send(input).is_err() || is_over {
                return;
            }
        }
    });
}
