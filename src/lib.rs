//! The daemon library.
