//! Test helpers: the number of cases, tests in processes of their own, a scripted model server, servers of others. Only
//! tests use it; it knows no engine.

mod alone;
mod depth;
pub mod llama;
pub mod mocks;
#[cfg(target_os = "linux")]
mod opens;
mod process;
#[cfg(feature = "server")]
pub mod server;

pub use self::alone::is_alone;
pub use self::depth::{DEEP, cases};
#[cfg(target_os = "linux")]
pub use self::opens::FolderOpens;
