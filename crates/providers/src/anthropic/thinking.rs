//! How a request's wishes for thinking and effort become parameters. A wish that the model or the rest of the request
//! rules out is fitted, never sent to be refused.

use open_agent_model::{
    Effort, ModelInfo, ModelRequest, RequestOptions, ThinkingKinds, ThinkingMode, ToolChoice,
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
    let kinds = kinds(&request.info);
    let mut effort = options.effort;
    if kinds.thinks() && !kinds.budget && effort.is_none() {
        effort = match options.thinking {
            Some(ThinkingMode::Enabled { budget_tokens }) => Some(nearest(budget_tokens)),
            Some(ThinkingMode::Disabled) => Some(Effort::Low),
            _ => None,
        };
    }
    let thinking = thinking(options, &request.info);
    let effort = effort.and_then(|wish| fitting_effort(&request.info, wish));
    Fitted { thinking, output_config: effort.map(|effort| OutputConfig { effort: effort.as_str() }) }
}

/// Models of which nothing is known, behind the same API, know budgets at best.
fn kinds(model: &ModelInfo) -> ThinkingKinds {
    model.thinking.unwrap_or(ThinkingKinds::BUDGET)
}

/// An effort is asked for only where it is known that the model takes one.
fn fitting_effort(model: &ModelInfo, wish: Effort) -> Option<Effort> {
    model.efforts.as_ref().and_then(|_| model.nearest_effort(wish))
}

/// What `fit` changed, for people.
pub(crate) fn notes(request: &ModelRequest) -> Vec<String> {
    let options = &request.options;
    if !kinds(&request.info).thinks() {
        return left_out(request).into_iter().collect();
    }
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
            let effort = fitted.output_config.as_ref().map(|c| format!(" with effort {}", c.effort));
            notes.push(format!(
                "{} takes no thinking budget: adaptive thinking{} is asked for",
                request.model,
                effort.unwrap_or_default()
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
            let (change, bound) = if sent.effort.parse().is_ok_and(|sent: Effort| sent > wish) {
                ("raised", "least")
            } else {
                ("lowered", "most")
            };
            notes.push(format!(
                "effort {wish} is {change} to {}, the {bound} that {} knows",
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

/// What is told of wishes that a model without thinking cannot fulfil. For both APIs.
pub(crate) fn left_out(request: &ModelRequest) -> Option<String> {
    let ModelRequest { model, info, options, .. } = request;
    let thinks = matches!(options.thinking, Some(ThinkingMode::Enabled { .. } | ThinkingMode::Adaptive));
    let takes_effort = info.efforts.as_ref().is_some_and(|efforts| !efforts.is_empty());
    let what = match (thinks, options.effort.is_some() && !takes_effort) {
        (true, true) => "thinking and effort are",
        (true, false) => "thinking is",
        (false, true) => "the effort is",
        (false, false) => return None,
    };
    Some(format!("{what} left out: {model} does not think"))
}

fn thinking(options: &RequestOptions, model: &ModelInfo) -> Option<Thinking> {
    let kinds = kinds(model);
    if !kinds.thinks() {
        return None;
    }
    // A call that must be made leaves no room for thinking before it.
    let forced = matches!(options.tool_choice, ToolChoice::Any | ToolChoice::Tool(_));
    let as_budget =
        options.effort.filter(|wish| fitting_effort(model, *wish).is_none()).map(Effort::budget_tokens);
    let wish = match options.thinking {
        Some(mode) => mode,
        None => ThinkingMode::Enabled { budget_tokens: as_budget? },
    };
    match wish {
        ThinkingMode::Disabled => kinds.off.then_some(Thinking::Disabled),
        _ if forced => None,
        ThinkingMode::Adaptive if kinds.adaptive => Some(Thinking::Adaptive),
        ThinkingMode::Enabled { .. } if !kinds.budget => Some(Thinking::Adaptive),
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

    use open_agent_model::Catalogue;

    use super::*;

    fn request(model: &str, set: impl FnOnce(&mut RequestOptions)) -> ModelRequest {
        let mut options = RequestOptions::default();
        set(&mut options);
        let info = Arc::new(Catalogue::default().info(model));
        ModelRequest {
            model: model.into(),
            info,
            prefix: Arc::default(),
            messages: Default::default(),
            options,
        }
    }

    fn fitted(model: &str, set: impl FnOnce(&mut RequestOptions)) -> String {
        shown(&request(model, set))
    }

    fn shown(request: &ModelRequest) -> String {
        let out = fit(request);
        format!(
            "{} {}",
            serde_json::to_string(&out.thinking).unwrap(),
            serde_json::to_string(&out.output_config).unwrap()
        )
    }

    fn noted(model: &str, set: impl FnOnce(&mut RequestOptions)) -> Vec<String> {
        notes(&request(model, set))
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

    #[test]
    fn what_was_registered_of_a_model_decides() {
        let with = |thinking, efforts: Option<&[Effort]>, set: fn(&mut RequestOptions)| {
            let info =
                ModelInfo { thinking, efforts: efforts.map(<[_]>::to_vec), ..ModelInfo::unknown("mine") };
            ModelRequest { info: Arc::new(info), ..request("mine", set) }
        };
        let adaptive = |o: &mut RequestOptions| o.thinking = Some(ThinkingMode::Adaptive);
        let max = |o: &mut RequestOptions| o.effort = Some(Effort::Max);
        let off = |o: &mut RequestOptions| o.thinking = Some(ThinkingMode::Disabled);
        assert_eq!(shown(&with(Some(ThinkingKinds::ALL), None, adaptive)), format!("{ADAPTIVE} null"));
        let low = with(None, Some(&[Effort::Low]), max);
        assert_eq!(shown(&low), r#"null {"effort":"low"}"#);
        assert_eq!(notes(&low), ["effort max is lowered to low, the most that mine knows"]);
        let always = ThinkingKinds { off: false, ..ThinkingKinds::ALL };
        assert_eq!(shown(&with(Some(always), None, off)), "null null");
        for (set, note) in [
            (adaptive as fn(&mut RequestOptions), "thinking is left out: mine does not think"),
            (max, "the effort is left out: mine does not think"),
        ] {
            let never = with(Some(ThinkingKinds::NONE), Some(&[]), set);
            assert_eq!((shown(&never).as_str(), notes(&never)), ("null null", vec![note.to_owned()]));
        }
        assert_eq!(notes(&with(Some(ThinkingKinds::NONE), Some(&[]), off)), [""; 0]);
    }
}
