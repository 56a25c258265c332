//! Two queue pairs, or one and a hand-written peer.

mod loss;
mod side;
