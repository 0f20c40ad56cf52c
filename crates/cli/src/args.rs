//! The options of a run. Owns their names, their help and how each value is read.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use open_agent::{BudgetScope, Catalogue, ConfigError, Cost, Effort, PermissionMode, ThinkingMode};

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
