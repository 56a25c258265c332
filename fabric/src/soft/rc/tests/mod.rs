//! Two queue pairs, or one and a hand-written peer.

mod discarding;
mod injection;
mod loss;
mod requester;
mod responder;
mod runs;
mod side;
mod states;
