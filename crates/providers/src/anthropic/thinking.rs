//! How a request's wishes for thinking and effort become parameters. A wish that the model or the rest of the request
//! rules out is fitted, never sent to be refused.

use open_agent_model::{
    Effort, ModelRequest, RequestOptions, ThinkingAbilities, ThinkingMode, ToolChoice, thinking_abilities,
};
use serde::Serialize;

/// The least budget that the API takes.
const LEAST_BUDGET: u64 = 1024;

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Thinking {
    Adaptive,
    Enabled { budget_tokens: u64 },
    Disabled,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OutputConfig {
    effort: &'static str,
}

/// The parameters of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fitted {
    pub(crate) thinking: Option<Thinking>,
    pub(crate) output_config: Option<OutputConfig>,
}

impl Fitted {
    /// Thinking will happen, which rules out a temperature.
    pub(crate) fn thinks(&self) -> bool {
        matches!(self.thinking, Some(Thinking::Adaptive | Thinking::Enabled { .. }))
    }
}

pub(crate) fn fit(request: &ModelRequest) -> Fitted {
    let options = &request.options;
    let model = thinking_abilities(&request.model);
    let mut effort = options.effort;
    if !model.budget && effort.is_none() {
        effort = match options.thinking {
            Some(ThinkingMode::Enabled { budget_tokens }) => Some(nearest(budget_tokens)),
            Some(ThinkingMode::Disabled) => Some(Effort::Low),
            _ => None,
        };
    }
    let thinking = thinking(options, &model);
    let output_config =
        effort.zip(model.effort).map(|(wish, most)| OutputConfig { effort: wish.min(most).as_str() });
    Fitted { thinking, output_config }
}

/// What `fit` changed, for people.
pub(crate) fn notes(request: &ModelRequest) -> Vec<String> {
    let options = &request.options;
    let fitted = fit(request);
    let mut notes = Vec::new();
    match (options.thinking, &fitted.thinking) {
        (Some(ThinkingMode::Enabled { budget_tokens }), Some(Thinking::Enabled { budget_tokens: sent }))
            if budget_tokens != *sent =>
        {
            let most = options.max_tokens;
            notes.push(format!(
                "a thinking budget of {budget_tokens} tokens does not fit into max_tokens {most}: {sent} are asked for"
            ));
        }
        (Some(ThinkingMode::Enabled { .. }), Some(Thinking::Adaptive)) => {
            let effort = fitted.output_config.as_ref().map_or("", |c| c.effort);
            notes.push(format!(
                "{} takes no thinking budget: adaptive thinking with effort {effort} is asked for",
                request.model
            ));
        }
        (Some(ThinkingMode::Adaptive), Some(Thinking::Enabled { budget_tokens })) => notes.push(format!(
            "{} knows no adaptive thinking: a budget of {budget_tokens} tokens is asked for",
            request.model
        )),
        (Some(ThinkingMode::Enabled { .. } | ThinkingMode::Adaptive), None) => {
            notes.push(
                "thinking is left out: a forced tool call or a small max_tokens leaves no room for it".into(),
            );
        }
        _ => {}
    }
    match (options.effort, &fitted.output_config, &fitted.thinking) {
        (Some(wish), Some(sent), _) if wish.as_str() != sent.effort => {
            notes.push(format!(
                "effort {wish} is lowered to {}, the most that {} knows",
                sent.effort, request.model
            ));
        }
        (Some(wish), None, Some(Thinking::Enabled { budget_tokens })) => {
            notes.push(format!("effort {wish} goes out as a thinking budget of {budget_tokens} tokens"));
        }
        (Some(wish), None, None) => {
            notes.push(format!("effort {wish} is left out: there is no room for thinking"))
        }
        _ => {}
    }
    if options.temperature.is_some() && fitted.thinks() {
        notes.push("the temperature is left out: it cannot be set together with thinking".into());
    }
    notes
}

fn thinking(options: &RequestOptions, model: &ThinkingAbilities) -> Option<Thinking> {
    // A call that must be made leaves no room for thinking before it.
    let forced = matches!(options.tool_choice, ToolChoice::Any | ToolChoice::Tool(_));
    let as_budget = options.effort.filter(|_| model.effort.is_none()).map(Effort::budget_tokens);
    let wish = match options.thinking {
        Some(mode) => mode,
        None => ThinkingMode::Enabled { budget_tokens: as_budget? },
    };
    match wish {
        ThinkingMode::Disabled => model.budget.then_some(Thinking::Disabled),
        _ if forced => None,
        ThinkingMode::Adaptive if model.adaptive => Some(Thinking::Adaptive),
        ThinkingMode::Enabled { .. } if !model.budget => Some(Thinking::Adaptive),
        ThinkingMode::Adaptive => {
            enabled(as_budget.unwrap_or(Effort::High.budget_tokens()), options.max_tokens)
        }
        ThinkingMode::Enabled { budget_tokens } => enabled(budget_tokens, options.max_tokens),
    }
}

/// The budget is a part of `max_tokens` and must leave something for the answer.
fn enabled(budget: u64, max_tokens: u64) -> Option<Thinking> {
    let budget = if budget < max_tokens { budget } else { max_tokens / 4 * 3 };
    let budget_tokens = budget.max(LEAST_BUDGET);
    (budget_tokens < max_tokens).then_some(Thinking::Enabled { budget_tokens })
}

fn nearest(budget: u64) -> Effort {
    Effort::ALL.into_iter().find(|e| budget <= e.budget_tokens()).unwrap_or(Effort::Max)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn fitted(model: &str, set: impl FnOnce(&mut RequestOptions)) -> String {
        let mut options = RequestOptions::default();
        set(&mut options);
        let request =
            ModelRequest { model: model.into(), prefix: Arc::default(), messages: Vec::new(), options };
        let out = fit(&request);
        format!(
            "{} {}",
            serde_json::to_string(&out.thinking).unwrap(),
            serde_json::to_string(&out.output_config).unwrap()
        )
    }

    fn noted(model: &str, set: impl FnOnce(&mut RequestOptions)) -> Vec<String> {
        let mut options = RequestOptions::default();
        set(&mut options);
        notes(&ModelRequest { model: model.into(), prefix: Arc::default(), messages: Vec::new(), options })
    }

    #[test]
    fn what_is_fitted_is_told() {
        let budget = |budget_tokens| Some(ThinkingMode::Enabled { budget_tokens });
        let one = |model: &str, set: fn(&mut RequestOptions)| -> String { noted(model, set).join("; ") };
        assert_eq!(one("claude-sonnet-4-6", |_| {}), "");
        assert_eq!(noted("claude-sonnet-4-6", |o| o.thinking = budget(4_000)), [""; 0]);
        let lowered = noted("claude-sonnet-4-6", |o| o.thinking = budget(32_768));
        assert_eq!(
            lowered,
            ["a thinking budget of 32768 tokens does not fit into max_tokens 16384: 12288 are asked for"]
        );
        let adaptive = noted("claude-opus-4-8", |o| o.thinking = budget(4_000));
        assert!(adaptive[0].contains("takes no thinking budget"), "{adaptive:?}");
        assert!(one("claude-opus-4-5", |o| o.effort = Some(Effort::Max)).contains("lowered to high"));
        assert!(one("claude-haiku-4-5", |o| o.effort = Some(Effort::Low)).contains("budget of 1024 tokens"));
        let forced = one("claude-sonnet-4-6", |o| {
            o.thinking = Some(ThinkingMode::Adaptive);
            o.tool_choice = ToolChoice::Any;
        });
        assert!(forced.contains("thinking is left out"), "{forced}");
        let warm = one("claude-sonnet-4-6", |o| {
            o.thinking = Some(ThinkingMode::Adaptive);
            o.temperature = Some(1.0);
        });
        assert!(warm.contains("the temperature is left out"), "{warm}");
    }

    const ADAPTIVE: &str = r#"{"type":"adaptive"}"#;

    #[test]
    fn nothing_asked_is_nothing_sent() {
        assert_eq!(fitted("claude-sonnet-4-6", |_| {}), "null null");
    }

    #[test]
    fn effort_goes_out_as_parameter_where_the_model_has_one_else_as_budget() {
        let high = |o: &mut RequestOptions| o.effort = Some(Effort::High);
        let max = |o: &mut RequestOptions| o.effort = Some(Effort::Max);
        assert_eq!(fitted("claude-sonnet-4-6", high), r#"null {"effort":"high"}"#);
        assert_eq!(fitted("claude-opus-4-5", max), r#"null {"effort":"high"}"#);
        assert_eq!(fitted("claude-haiku-4-5", high), r#"{"type":"enabled","budget_tokens":10240} null"#);
    }

    #[test]
    fn modes_are_fitted_to_the_model() {
        let mode = |m| move |o: &mut RequestOptions| o.thinking = Some(m);
        let budget = ThinkingMode::Enabled { budget_tokens: 5000 };
        let enabled = r#"{"type":"enabled","budget_tokens":5000}"#;
        assert_eq!(fitted("claude-sonnet-4-6", mode(ThinkingMode::Adaptive)), format!("{ADAPTIVE} null"));
        assert_eq!(fitted("claude-sonnet-4-6", mode(budget)), format!("{enabled} null"));
        assert_eq!(fitted("claude-sonnet-4-6", mode(ThinkingMode::Disabled)), r#"{"type":"disabled"} null"#);
        assert_eq!(fitted("claude-opus-4-7", mode(budget)), format!(r#"{ADAPTIVE} {{"effort":"medium"}}"#));
        assert_eq!(fitted("claude-opus-5", mode(ThinkingMode::Disabled)), r#"null {"effort":"low"}"#);
        assert_eq!(
            fitted("claude-haiku-4-5", mode(ThinkingMode::Adaptive)),
            r#"{"type":"enabled","budget_tokens":10240} null"#
        );
        assert_eq!(fitted("local", mode(budget)), format!("{enabled} null"));
    }

    #[test]
    fn the_budget_stays_below_max_tokens() {
        let of = |budget_tokens, max_tokens| {
            fitted("claude-sonnet-4-5", move |o| {
                o.thinking = Some(ThinkingMode::Enabled { budget_tokens });
                o.max_tokens = max_tokens;
            })
        };
        assert_eq!(of(20_000, 16_000), r#"{"type":"enabled","budget_tokens":12000} null"#);
        assert_eq!(of(16_000, 16_000), r#"{"type":"enabled","budget_tokens":12000} null"#);
        assert_eq!(of(100, 16_000), r#"{"type":"enabled","budget_tokens":1024} null"#);
        assert_eq!(of(5000, 1000), "null null");
        assert_eq!(of(5000, 1025), r#"{"type":"enabled","budget_tokens":1024} null"#);
    }

    #[test]
    fn a_forced_call_rules_out_thinking() {
        let out = fitted("claude-sonnet-4-6", |o| {
            o.thinking = Some(ThinkingMode::Adaptive);
            o.tool_choice = ToolChoice::Any;
        });
        assert_eq!(out, "null null");
    }
}
