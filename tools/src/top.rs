//! `ibtap top`: a view of the interfaces that refreshes itself.

mod cell;
mod counts;
mod draw;
mod losses;
mod model;
mod poll;
mod sample;
mod screen;
mod table;
#[cfg(test)]
mod tests;
mod view;

use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use control::ClientError;

use self::draw::Look;
use self::model::Model;
use self::poll::Poller;
use self::sample::{Answer, Query, Sample};
use self::view::View;
use crate::output::{Failure, Format, no_color, print};

/// Width of the text of --batch, unless the environment has another.
const BATCH_WIDTH: u16 = 120;

/// Show rates, drops by reason, neighbours and connections on a screen that refreshes itself
///
/// The keys are those of htop: F1 shows them, F3 searches, F4 filters, F6 selects the column that sorts, Tab
/// changes the view, F10 or q quits.
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// Only this interface [default: all]
    #[arg(value_name = "IF")]
    interface: Option<String>,
    /// Seconds between two updates
    #[arg(long, short, value_name = "SECONDS", default_value = "1", value_parser = delay)]
    delay: Duration,
    /// First view
    #[arg(long, short, value_enum, default_value_t)]
    view: View,
    /// Sort by this column of the view, which the heading names
    #[arg(long, short, value_name = "COLUMN")]
    sort: Option<String>,
    /// Only rows of the view with this text, or with one of TEXT|TEXT
    #[arg(long, short, value_name = "TEXT", default_value_t)]
    filter: String,
    /// Print text, without a terminal: the view once for each update
    #[arg(long, short)]
    batch: bool,
    /// With --batch: stop after this many updates [default: at Ctrl-C]
    #[arg(long, short = 'n', value_name = "N", requires = "batch")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    iterations: Option<u32>,
}

fn delay(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!(
            "{text:?} is not a number of seconds; use 0.1 to 3600"
        )),
    }
}

/// Runs until the user ends it.
pub fn run(args: &TopArgs, socket: &Path, format: Format) -> Result<(), Failure> {
    if format != Format::Text {
        let advice = "\"ibtap top\" prints no JSON; use \"ibtap stats --json\"";
        return Err(Failure::Usage(advice.to_owned()));
    }
    if !args.batch && !stdout().is_terminal() {
        let advice = "\"ibtap top\" needs a terminal; to print text, add --batch";
        return Err(Failure::Usage(advice.to_owned()));
    }
    let start = Instant::now();
    let mut model = model(args)?;
    let mut poller = Poller::new(socket.to_owned(), args.interface.clone(), start);
    // A daemon that is away, and a wrong name, are reported before the screen is cleared.
    if let Some(query) = model.query(start.elapsed()) {
        let sample = poller.ask(&query)?;
        model.take(start.elapsed(), Answer::Sample(Box::new(sample)));
    }
    if args.batch {
        return batch(args, model, poller, start);
    }
    screen::run(model, poller, start, Look::new(!no_color()))
}

fn model(args: &TopArgs) -> Result<Model, Failure> {
    let mut model = Model::new(args.view, args.delay);
    let table = model.table();
    if let Some(name) = &args.sort {
        let titles: Vec<&str> = table.columns().iter().map(|column| column.title).collect();
        let place = titles
            .iter()
            .position(|title| title.eq_ignore_ascii_case(name));
        let Some(place) = place else {
            let titles = titles.join(", ");
            let advice = format!("the view has no column {name:?}; use one of {titles}");
            return Err(Failure::Usage(advice));
        };
        table.sort_by(place);
    }
    table.set_filter(args.filter.clone());
    Ok(model)
}

/// Asks what is due. The second query is for the table of an interface that the first one has found. A third would be
/// the next update's, which is due already if the daemon is slower than the delay.
fn update(
    model: &mut Model,
    now: impl Fn() -> Duration,
    mut ask: impl FnMut(&Query) -> Result<Sample, ClientError>,
) -> Result<(), ClientError> {
    for _ in 0..2 {
        let Some(query) = model.query(now()) else {
            break;
        };
        let sample = ask(&query)?;
        model.take(now(), Answer::Sample(Box::new(sample)));
    }
    Ok(())
}

/// Prints the view each time when its answers are there. The first answers give no rates.
fn batch(
    args: &TopArgs,
    mut model: Model,
    mut poller: Poller,
    start: Instant,
) -> Result<(), Failure> {
    let columns = std::env::var("COLUMNS").ok();
    let width = columns.and_then(|columns| columns.parse().ok());
    let width = width.filter(|width| *width > 0).unwrap_or(BATCH_WIDTH);
    let mut left = args.iterations;
    while left != Some(0) {
        thread::sleep(args.delay);
        update(&mut model, || start.elapsed(), |query| poller.ask(query))?;
        print(Format::Text, &[()], |_| {
            draw::text(&mut model, start.elapsed(), width) + "\n"
        })?;
        left = left.map(|left| left - 1);
    }
    Ok(())
}
