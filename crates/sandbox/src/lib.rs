//! Files and processes, plainly: [`PlainFiles`] and [`PlainRunner`] carry out what tools ask for, as the user who runs the
//! program. Judges nothing; holds no tool.

mod environment;
mod files;
mod folder;
mod limits;
mod nofollow;
mod orphans;
mod resolve;
mod runner;
mod tree;
mod trees;

pub use environment::REMOVED_VARIABLES;
pub use files::PlainFiles;
pub use orphans::OrphanReaper;
pub use runner::PlainRunner;
