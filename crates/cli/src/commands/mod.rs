//! Sub-commands, one file each. A new one is its file, which has a `clap::Args` struct with `fn run(self) ->
//! Result<Exit>`, and its line below.

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Exit;

macro_rules! commands {
    ($($(#[$doc:meta])* $module:ident :: $name:ident,)*) => {
        $(mod $module;)*

        /// The sub-commands.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $($(#[$doc])* $name($module::$name),)*
        }

        impl Command {
            pub(crate) fn run(self) -> Result<Exit> {
                match self {
                    $(Self::$name(command) => command.run(),)*
                }
            }
        }
    };
}

commands! {
    /// Let a scripted model find and fix a bug in a throw-away folder, offline
    demo::Demo,
    /// List the models that are known, with prices, windows and abilities
    models::Models,
}
