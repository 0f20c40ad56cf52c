//! The whole command line: the options of a run and the sub-commands. Owns what can be said about the arguments before
//! anything is looked at.

use std::ffi::OsString;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::{OutputFormat, RunArgs};
use crate::commands::Command;
use crate::exit::{self, Exit, say};

const EXAMPLES: &str = "\
Examples:
  open-agent -p \"What does this project do?\"
  git diff | open-agent -p \"Review this change\" --output-format json
  open-agent -p \"Fix the failing test\" --allowed-tools Edit,Bash --max-turns 20
  open-agent -p \"Hello\" --base-url http://127.0.0.1:8080/v1 --model local

Keys and addresses come from the environment: CODEANY_API_KEY, CODEANY_BASE_URL, CODEANY_MODEL, or the vendor's own
(ANTHROPIC_API_KEY, OPENAI_API_KEY, …).

Exit codes: 0 success, 1 the run failed or reached a limit, 2 wrong usage or configuration, 130 interrupted (143 by SIGTERM, 129 by SIGHUP).";

/// An agent for your project: a model answers, uses tools, and works until it is done
#[derive(Debug, Parser)]
#[command(
    name = "open-agent",
    after_help = EXAMPLES,
    disable_version_flag = true,
    disable_help_subcommand = true,
    // A prompt may be called like a sub-command once an option came before it.
    args_conflicts_with_subcommands = true,
    override_usage = "open-agent [OPTIONS] [-p] [PROMPT]\n       open-agent COMMAND"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub run: RunArgs,
}

/// What other command lines have and this one does not have yet. Never ignored: a script would do something else than
/// it says.
const NOT_YET: &[(&[&str], &str)] = &[
    (
        &[
            "--continue",
            "-c",
            "--resume",
            "-r",
            "--fork-session",
            "--session-id",
            "--name",
            "-n",
            "--from-pr",
        ],
        "sessions are kept, but cannot be taken up from the command line yet",
    ),
    (&["--mcp-config", "--strict-mcp-config"], "MCP servers cannot be used yet"),
    (&["--json-schema"], "answers by a schema are not available yet"),
    (&["--input-format", "--replay-user-messages"], "only one prompt of text can be given yet"),
    (&["--settings", "--setting-sources", "--bare", "--safe-mode"], "there are no settings files yet"),
    (
        &["--agent", "--agents", "--forward-subagent-text", "--bg", "--worktree", "-w"],
        "there are no sub-agents yet",
    ),
    (&["--plugin-dir", "--plugin-url"], "there are no plugins yet"),
    (&["--include-hook-events", "--init", "--init-only", "--maintenance"], "there are no hooks yet"),
    (&["--permission-prompt-tool", "--allow-dangerously-skip-permissions"], "nobody can be asked yet"),
    (&["--add-dir"], "only one folder can be worked in yet: name it with --cwd"),
    (&["--append-system-prompt-file"], "use --append-system-prompt \"$(cat FILE)\" for now"),
    (&["--max-thinking-tokens"], "use --thinking N"),
    (&["--exclude-dynamic-system-prompt-sections"], "the system prompt cannot be cut yet"),
    (&["--debug", "--debug-file", "-d"], "use --verbose"),
    (&["--ide", "--chrome", "--remote-control"], "nothing of that kind can be connected yet"),
];

/// Reads the arguments. An error has been told already.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    let error = match Cli::try_parse_from(args) {
        Ok(cli) => match contradiction(&cli.run) {
            None => return Ok(cli),
            Some(text) => {
                say(&text);
                return Err(Exit::Usage);
            }
        },
        Err(error) => error,
    };
    if let Some((flag, why)) = not_yet(&error) {
        say(&format!("{flag} is not available: {why}"));
        return Err(Exit::Usage);
    }
    let wanted = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let printed = error.print().and_then(|()| std::io::Write::flush(&mut std::io::stdout()));
    Err(match printed {
        _ if !wanted => Exit::Usage,
        Ok(()) => Exit::Success,
        Err(error) => exit::of_error(&error.into()),
    })
}

fn not_yet(error: &clap::Error) -> Option<(String, &'static str)> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let flag = given.split(['=', ' ']).next().unwrap_or_default();
    let (_, why) = NOT_YET.iter().find(|(flags, _)| flags.contains(&flag))?;
    Some((flag.to_owned(), why))
}

fn contradiction(args: &RunArgs) -> Option<String> {
    if let [_, second, ..] = args.prompt.as_slice() {
        return Some(format!(
            "there is one prompt too many, {second:?}: quote the prompt, and give a list of tools as one value (--allowed-tools \"Read,Edit\")"
        ));
    }
    (args.include_partial_messages && args.output_format != OutputFormat::StreamJson)
        .then(|| "--include-partial-messages needs --output-format stream-json".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ToolList;

    fn parsed(line: &[&str]) -> RunArgs {
        let line = std::iter::once(&"open-agent").chain(line).map(OsString::from);
        Cli::try_parse_from(line).unwrap().run
    }

    fn refused(line: &[&str]) -> clap::Error {
        Cli::try_parse_from(std::iter::once(&"open-agent").chain(line)).unwrap_err()
    }

    #[test]
    fn the_definition_is_sound() {
        crate::command().debug_assert();
    }

    #[test]
    fn the_prompt_may_stand_anywhere() {
        for line in [
            &["-p", "fix it", "--model", "m"] as &[&str],
            &["--model", "m", "fix it", "-p"],
            &["fix it", "-p", "--model=m"],
            &["-p", "--model", "m", "--", "fix it"],
        ] {
            let args = parsed(line);
            assert_eq!(
                (args.prompt.as_slice(), args.print),
                (&["fix it".to_owned()] as &[_], true),
                "{line:?}"
            );
        }
        assert_eq!(parsed(&["-p", "models"]).prompt, ["models"], "a prompt like a sub-command");
    }

    #[test]
    fn lists_go_by_comma_and_space_and_add_up() {
        let args = parsed(&["--allowedTools", "Read, Edit Bash", "--allowed-tools", "Glob", "--tools", ""]);
        let names: Vec<String> = args.allowed_tools.into_iter().flat_map(|list| list.0).collect();
        assert_eq!(names, ["Read", "Edit", "Bash", "Glob"]);
        assert_eq!(args.tools, [ToolList(vec![])]);
        let text = refused(&["--disallowedTools", "Read Bash(rm *)"]).to_string();
        assert!(text.contains("not available yet: name the whole tool, Bash"), "{text}");
    }

    #[test]
    fn limits_below_1_are_refused_in_words() {
        for (flag, value) in [
            ("--max-turns", "-1"),
            ("--max-turns", "0"),
            ("--max-turns", "many"),
            ("--max-budget-usd", "0"),
            ("--max-budget-usd", "-2"),
            ("--thinking", "0"),
            ("--thinking", "-5"),
            ("--idle-timeout", "0"),
            ("--idle-timeout", "soon"),
        ] {
            let text = refused(&[flag, value]).to_string();
            assert!(text.contains(flag) && text.contains("above 0"), "{flag} {value}: {text}");
        }
    }

    #[test]
    fn help_says_what_a_budget_covers() {
        let help = crate::command().render_long_help().to_string();
        for text in
            ["all that this agent makes, retries and a fallback model", "session (also what its session had"]
        {
            assert!(help.contains(text), "{help}");
        }
    }

    #[test]
    fn what_is_not_there_yet_is_named() {
        for flag in NOT_YET.iter().flat_map(|(flags, _)| *flags) {
            let error = refused(&[flag, "x"]);
            let (named, _) = not_yet(&error).unwrap_or_else(|| panic!("{flag}: {error}"));
            assert_eq!(&named, flag);
        }
        assert!(not_yet(&refused(&["--modle", "x"])).is_none(), "a slip of the pen gets clap's advice");
    }
}
