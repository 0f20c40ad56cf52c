//! `open-agent demo`: a small real job, done offline by a scripted model with real tools. Owns the folder and the verdict;
//! what is printed comes from the run's events.

mod project;
mod solver;
mod story;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use open_agent::{Agent, PermissionMode};

use crate::args::{ToolList, tool_list};
use crate::exit::{Exit, wrong};
use crate::run;
use story::Story;

/// Let a scripted model find and fix a bug in a throw-away folder, offline, with real tools.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Which bug
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Work in this folder, which has to be new or empty, and keep it
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// Not these tools, by comma or space
    #[arg(long, alias = "disallowedTools", value_name = "TOOLS", value_parser = tool_list)]
    disallowed_tools: Vec<ToolList>,
}

impl Demo {
    pub(crate) fn run(self) -> Result<Exit> {
        let temporary = tempfile::tempdir().context("no temporary folder can be made")?;
        let folder = match &self.keep {
            None => temporary.path().to_owned(),
            Some(folder) => {
                if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
                    return wrong(format!("--keep {}: the folder is not empty", folder.display()));
                }
                folder.clone()
            }
        };
        project::write(&folder, self.seed)
            .with_context(|| format!("the demo's project cannot be written to {}", folder.display()))?;
        let disallowed = self.disallowed_tools.iter().flat_map(|list| list.0.iter().cloned());
        let agent = Agent::builder()
            .provider(solver::model())
            .model(solver::MODEL)
            .cwd(folder)
            // It may do anything in a folder that was made for it.
            .permission_mode(PermissionMode::BypassPermissions)
            .without_tools(disallowed)
            // Where there is no home, there is no place for a session.
            .configure(|o| o.persist_session = std::env::var_os("HOME").is_some_and(|home| !home.is_empty()))
            .build()?;
        let mut story = Story::default();
        let exit = run::with_output(&agent, PROMPT.to_owned(), &mut story)?;
        Ok(if exit == Exit::Success && !story.is_fixed() { Exit::Failed } else { exit })
    }
}

const PROMPT: &str = "One of the shell functions in src is wrong. Find it and fix it; `sh test.sh` has to pass.";
