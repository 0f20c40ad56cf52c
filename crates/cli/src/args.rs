//! The arguments. Owns their names, their help and what can be said about them before anything is looked at.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, ValueEnum};
use open_agent::{BudgetScope, Catalogue, ConfigError, Cost, Effort, PermissionMode, ThinkingMode};

use crate::commands::Command;
use crate::exit::{Exit, say};

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

/// How a prompt is to be answered.
#[derive(Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// What to do; stdin is appended, or is the prompt if there is none here
    #[arg(value_name = "PROMPT")]
    pub prompt: Vec<String>,

    /// Answer the prompt and exit (without it the same, as long as there is no interactive mode)
    #[arg(short, long)]
    pub print: bool,

    /// What to print on stdout
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output_format: OutputFormat,

    /// With stream-json: also print answers in pieces, as they come
    #[arg(long)]
    pub include_partial_messages: bool,

    #[arg(long, value_name = "NAME", help = models())]
    pub model: Option<String>,

    /// Whom to ask when the model fails in spite of retries
    #[arg(long, value_name = "NAME")]
    pub fallback_model: Option<String>,

    #[arg(long, value_name = "NAME", help = providers())]
    pub provider: Option<String>,

    /// Where the provider is
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,

    /// Stop after so many answers of the model
    #[arg(long, value_name = "N", value_parser = turns, allow_hyphen_values = true)]
    pub max_turns: Option<u32>,

    /// Spend at most this many dollars on model requests: on all that this agent makes, retries and a fallback model
    /// included. See --budget-scope
    #[arg(long, value_name = "USD", value_parser = budget, allow_hyphen_values = true)]
    pub max_budget_usd: Option<Cost>,

    /// What --max-budget-usd covers: agent (all requests since this agent was started; the default) or session (also what
    /// its session had cost before)
    #[arg(long, value_name = "SCOPE", value_parser = read::<BudgetScope>, requires = "max_budget_usd")]
    pub budget_scope: Option<BudgetScope>,

    /// Instructions instead of the default ones
    #[arg(long, value_name = "TEXT")]
    pub system_prompt: Option<String>,

    /// The same, from a file
    #[arg(long, value_name = "FILE", conflicts_with = "system_prompt")]
    pub system_prompt_file: Option<PathBuf>,

    /// Instructions after the others
    #[arg(long, value_name = "TEXT")]
    pub append_system_prompt: Option<String>,

    /// Only these tools, by comma or space; "" for none, default for all
    #[arg(long, value_name = "TOOLS", value_parser = tool_list)]
    pub tools: Vec<ToolList>,

    /// These tools run without being asked about
    #[arg(long, alias = "allowedTools", value_name = "TOOLS", value_parser = tool_list)]
    pub allowed_tools: Vec<ToolList>,

    /// Not these tools
    #[arg(long, alias = "disallowedTools", value_name = "TOOLS", value_parser = tool_list)]
    pub disallowed_tools: Vec<ToolList>,

    /// What runs: default (reads inside the folder) or bypassPermissions (everything)
    #[arg(long, value_name = "MODE", value_parser = read_mode)]
    pub permission_mode: Option<PermissionMode>,

    /// The same as --permission-mode bypassPermissions
    #[arg(long, conflicts_with = "permission_mode")]
    pub dangerously_skip_permissions: bool,

    /// How the model thinks: adaptive, disabled, or a number of tokens
    #[arg(long, value_name = "MODE", value_parser = read::<ThinkingMode>, allow_hyphen_values = true)]
    pub thinking: Option<ThinkingMode>,

    /// How much work goes into an answer: low, medium, high, max
    #[arg(long, value_name = "LEVEL", value_parser = read::<Effort>)]
    pub effort: Option<Effort>,

    /// How often a failed request is made again; 0 for never, default 3
    #[arg(long, value_name = "N")]
    pub max_retries: Option<u32>,

    /// How long a server may say nothing, in seconds; default 300
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub idle_timeout: Option<Duration>,

    /// Beta features to ask the vendor for, by comma or space
    #[arg(long, value_name = "NAMES")]
    pub betas: Vec<String>,

    /// The project's folder
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,

    /// Keep the session in memory only: nothing is written to the home folder
    #[arg(long)]
    pub no_session_persistence: bool,

    /// Tell on stderr what is done
    #[arg(long)]
    pub verbose: bool,

    /// Print the version
    #[arg(short = 'v', long)]
    pub version: bool,
}

/// What is printed on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// The answer
    #[default]
    Text,
    /// The result as one JSON object
    Json,
    /// All messages and the result, a JSON object a line
    StreamJson,
}

/// Tools by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolList(pub Vec<String>);

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
        Err(error) => crate::exit::of_error(&error.into()),
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

/// Reads a permission mode that agents can run in.
fn read_mode(text: &str) -> Result<PermissionMode, String> {
    let mode: PermissionMode = read(text)?;
    if mode.is_available() { Ok(mode) } else { Err(ConfigError::ModeNotAvailable { mode }.to_string()) }
}

fn read<T: FromStr<Err = String>>(text: &str) -> Result<T, String> {
    text.parse()
}

fn providers() -> String {
    format!("The provider: {}", open_agent::provider_names().collect::<Vec<_>>().join(", "))
}

fn models() -> String {
    let catalogue = Catalogue::default();
    let aliases: Vec<&str> = catalogue.aliases().map(|(alias, _)| alias).collect();
    format!(
        "The model, or the newest one of a family: {} (`open-agent models` lists them)",
        aliases.join(", ")
    )
}

fn turns(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(turns) if turns > 0 => Ok(turns),
        _ => Err("give a whole number above 0, or leave it out for no limit".into()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.filter(|limit| !limit.is_zero()).ok_or_else(|| "give a number of seconds above 0".into())
}

fn budget(text: &str) -> Result<Cost, String> {
    match Cost::from_usd(text) {
        Some(cost) if cost > Cost(0) => Ok(cost),
        _ => Err("give an amount in dollars above 0, such as 0.50, or leave it out for no limit".into()),
    }
}

pub(crate) fn tool_list(text: &str) -> Result<ToolList, String> {
    if let Some((before, _)) = text.split_once('(') {
        let tool = before.rsplit([',', ' ']).next().unwrap_or_default();
        return Err(format!(
            "rules with a specification in parentheses are not available yet: name the whole tool, {tool}"
        ));
    }
    let names = text.split([',', ' ', '\t', '\n']).filter(|name| !name.is_empty());
    Ok(ToolList(names.map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
