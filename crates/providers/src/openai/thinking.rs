//! How thinking and effort are asked for where the vendors never agreed. Owns the forms; the profile says which one.

use open_agent_model::{Effort, ModelInfo, RequestOptions, ThinkingKinds, ThinkingMode};
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
    /// The fields for what `options` ask for, as far as the model can do it. Of a model of which nothing is known, all is
    /// asked for.
    pub(crate) fn new(style: ThinkingStyle, options: &RequestOptions, model: &ModelInfo) -> Self {
        let kinds = model.thinking.unwrap_or(ThinkingKinds::ALL);
        // How these APIs ask for adaptive thinking and for a budget is the profile's matter; whether the model can be
        // told to think, or not to, is the model's.
        let mode = options.thinking.filter(|mode| match mode {
            ThinkingMode::Disabled => kinds.off,
            _ => kinds.thinks(),
        });
        let effort = options.effort.and_then(|wish| model.nearest_effort(wish));
        if mode.is_none() && effort.is_none() {
            return Self::default();
        }
        let most = model
            .efforts
            .as_ref()
            .map_or(Effort::High, |known| known.last().copied().unwrap_or(Effort::High));
        let word = |effort: Effort| effort.min(most).as_str();
        let off = mode == Some(ThinkingMode::Disabled);
        let budget = match mode {
            Some(ThinkingMode::Enabled { budget_tokens }) => Some(budget_tokens),
            _ => None,
        };
        match style {
            ThinkingStyle::Effort { off: word } if off => Self { reasoning_effort: word, ..Self::default() },
            ThinkingStyle::Effort { .. } => {
                Self { reasoning_effort: effort.or(budget.map(nearest)).map(word), ..Self::default() }
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

/// The effort that stands for a budget of tokens.
fn nearest(budget: u64) -> Effort {
    Effort::ALL.into_iter().find(|e| budget <= e.budget_tokens()).unwrap_or(Effort::Max)
}

#[cfg(test)]
mod tests {
    use open_agent_model::Catalogue;

    use super::*;

    fn json(style: ThinkingStyle, mode: Option<ThinkingMode>, effort: Option<Effort>) -> String {
        let options = RequestOptions { thinking: mode, effort, ..RequestOptions::default() };
        serde_json::to_string(&Wishes::new(style, &options, &ModelInfo::unknown("m"))).unwrap()
    }

    #[test]
    fn what_is_known_of_the_model_decides_what_is_asked_for() {
        use ThinkingStyle as S;
        let ask = |style, model: &ModelInfo, thinking, effort| {
            let options = RequestOptions { thinking, effort, ..RequestOptions::default() };
            serde_json::to_string(&Wishes::new(style, &options, model)).unwrap()
        };
        let budget = Some(ThinkingMode::Enabled { budget_tokens: 30_000 });
        let (adaptive, off) = (Some(ThinkingMode::Adaptive), Some(ThinkingMode::Disabled));
        let styles = [S::Effort { off: Some("none") }, S::Switch, S::Reasoning, S::Template];
        let never = Catalogue::default().info("gpt-4.1");
        for style in styles {
            for mode in [budget, adaptive, off, None] {
                assert_eq!(ask(style, &never, mode, Some(Effort::High)), "{}", "{style:?} {mode:?}");
            }
        }
        let always = ModelInfo {
            thinking: Some(ThinkingKinds { off: false, ..ThinkingKinds::ALL }),
            efforts: Some(vec![]),
            ..ModelInfo::unknown("m")
        };
        for style in styles {
            assert_eq!(ask(style, &always, off, None), "{}", "{style:?}");
        }
        assert_eq!(
            ask(S::Switch, &always, adaptive, Some(Effort::Low)),
            r#"{"thinking":{"type":"enabled"}}"#
        );
        let two = ModelInfo { efforts: Some(vec![Effort::Low, Effort::Medium]), ..ModelInfo::unknown("m") };
        let medium = r#"{"reasoning_effort":"medium"}"#;
        assert_eq!(ask(styles[0], &two, None, Some(Effort::Max)), medium);
        assert_eq!(ask(styles[0], &two, budget, None), medium);
        // A model that knows more than most is asked for it.
        let all = ModelInfo { efforts: Some(Effort::ALL.to_vec()), ..ModelInfo::unknown("m") };
        assert_eq!(ask(styles[0], &all, None, Some(Effort::Max)), r#"{"reasoning_effort":"max"}"#);
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
