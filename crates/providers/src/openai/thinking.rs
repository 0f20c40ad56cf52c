//! How thinking and effort are asked for where the vendors never agreed. Owns the forms; the profile says which one.

use open_agent_model::{Effort, RequestOptions, ThinkingMode};
use serde::Serialize;

use crate::ThinkingStyle;

/// The fields of a request that speak of thinking.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Wishes {
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Switch>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chat_template_kwargs: Option<Template>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Switch {
    #[serde(rename = "type")]
    kind: &'static str,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Template {
    enable_thinking: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
}

impl Wishes {
    pub(crate) fn new(style: ThinkingStyle, options: &RequestOptions) -> Self {
        let (mode, effort) = (options.thinking, options.effort);
        if mode.is_none() && effort.is_none() {
            return Self::default();
        }
        let off = mode == Some(ThinkingMode::Disabled);
        let budget = match mode {
            Some(ThinkingMode::Enabled { budget_tokens }) => Some(budget_tokens),
            _ => None,
        };
        match style {
            ThinkingStyle::Effort { off: word } if off => Self { reasoning_effort: word, ..Self::default() },
            ThinkingStyle::Effort { .. } => {
                Self { reasoning_effort: effort.map(word).or(budget.map(nearest)), ..Self::default() }
            }
            ThinkingStyle::Switch => {
                let kind = if off { "disabled" } else { "enabled" };
                let reasoning_effort = effort.filter(|_| !off).map(Effort::as_str);
                Self { thinking: Some(Switch { kind }), reasoning_effort, ..Self::default() }
            }
            ThinkingStyle::Reasoning => {
                let reasoning = if off {
                    Reasoning { enabled: Some(false), ..Reasoning::default() }
                } else if let Some(effort) = effort {
                    Reasoning { effort: Some(word(effort)), ..Reasoning::default() }
                } else if let Some(budget) = budget {
                    let most = options.max_tokens.saturating_sub(1).max(1);
                    Reasoning { max_tokens: Some(budget.min(most)), ..Reasoning::default() }
                } else {
                    Reasoning { enabled: Some(true), ..Reasoning::default() }
                };
                Self { reasoning: Some(reasoning), ..Self::default() }
            }
            ThinkingStyle::Template => {
                let reasoning_effort = effort.map(word).filter(|_| !off);
                let template = Template { enable_thinking: !off, reasoning_effort };
                Self { chat_template_kwargs: Some(template), ..Self::default() }
            }
            // The other API's form has no meaning here.
            ThinkingStyle::Messages => Self::default(),
        }
    }
}

/// Most of these APIs know three levels.
fn word(effort: Effort) -> &'static str {
    effort.min(Effort::High).as_str()
}

fn nearest(budget: u64) -> &'static str {
    let found = Effort::ALL.into_iter().find(|e| budget <= e.budget_tokens());
    word(found.unwrap_or(Effort::Max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(style: ThinkingStyle, mode: Option<ThinkingMode>, effort: Option<Effort>) -> String {
        let options = RequestOptions { thinking: mode, effort, ..RequestOptions::default() };
        serde_json::to_string(&Wishes::new(style, &options)).unwrap()
    }

    #[test]
    fn each_style_says_it_its_way() {
        use ThinkingStyle as S;
        let budget = Some(ThinkingMode::Enabled { budget_tokens: 5000 });
        let off = Some(ThinkingMode::Disabled);
        let max = Some(Effort::Max);
        for style in [S::Effort { off: None }, S::Switch, S::Reasoning, S::Template, S::Messages] {
            assert_eq!(json(style, None, None), "{}");
        }
        let effort = S::Effort { off: Some("none") };
        assert_eq!(json(effort, budget, None), r#"{"reasoning_effort":"medium"}"#);
        assert_eq!(json(effort, None, max), r#"{"reasoning_effort":"high"}"#);
        assert_eq!(json(effort, off, None), r#"{"reasoning_effort":"none"}"#);
        assert_eq!(json(S::Effort { off: None }, off, None), "{}");
        assert_eq!(json(S::Switch, off, None), r#"{"thinking":{"type":"disabled"}}"#);
        let both = r#"{"reasoning_effort":"max","thinking":{"type":"enabled"}}"#;
        assert_eq!(json(S::Switch, None, max), both);
        assert_eq!(json(S::Switch, off, max), r#"{"thinking":{"type":"disabled"}}"#);
        assert_eq!(json(S::Switch, budget, None), r#"{"thinking":{"type":"enabled"}}"#);
        assert_eq!(json(S::Reasoning, budget, None), r#"{"reasoning":{"max_tokens":5000}}"#);
        assert_eq!(json(S::Reasoning, budget, max), r#"{"reasoning":{"effort":"high"}}"#);
        assert_eq!(json(S::Reasoning, off, None), r#"{"reasoning":{"enabled":false}}"#);
        assert_eq!(json(S::Template, off, None), r#"{"chat_template_kwargs":{"enable_thinking":false}}"#);
        assert_eq!(
            json(S::Template, None, max),
            r#"{"chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":"high"}}"#
        );
    }
}
