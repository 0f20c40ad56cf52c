//! How files are changed: where a text is found, what ends the lines that replace it, what a miss has to tell, and the
//! patch that people see. Reads and writes nothing itself.

mod find;
mod lines;
mod miss;
mod patch;

pub(crate) use find::{Matches, Replaced};
pub(crate) use lines::adopt_line_ends;
pub(crate) use miss::explain_miss;
pub(crate) use patch::{Hunk, patch};
