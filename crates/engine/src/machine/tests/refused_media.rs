//! Requests that the provider refused for a picture.

use open_agent_model::Source;

use super::*;

#[test]
fn a_request_without_the_refused_picture_costs_no_attempt() {
    let mut s = Script::new(RunLimits::default());
    s.push(text(0, StopReason::EndTurn));
    s.settle();
    s.run(RunLimits::default());
    let picture = Source::Inline { media_type: "image/png".into(), data: "AA==".into() };
    let message = message(8, Role::User, vec![Block::Image(picture)]);
    s.push(SessionEntry::User(UserMessage { message, origin: Origin::Prompt.into() }));
    s.push(failed(Some(retry(1, "m"))));
    let after = |s: &Script, sent_media| {
        s.machine.after_failure(FailureFacts {
            model: &"m".into(),
            error: &ProviderError::new(ProviderErrorKind::InvalidRequest, "could not process image"),
            config: &RetryConfig::default(),
            fallback: None,
            sent_media,
            now: Timestamp(1_000),
            chance: 0.5,
        })
    };
    let refused = after(&s, true);
    let retry = refused.retry.unwrap();
    assert_eq!((retry.attempt, retry.delay_ms), (1, 0), "as many failures as before");
    assert!(matches!(&refused.entries[..], [SessionEntry::Noticed(_), SessionEntry::Withheld(_)]));
    assert!(s.machine.context_tokens() > 0);
    for entry in refused.entries {
        s.push(entry);
    }
    assert_eq!(s.machine.context_tokens(), 0, "the conversation is shorter than it was counted");
    let again = after(&s, true);
    assert!(again.retry.is_none() && again.entries.is_empty(), "no picture is left that could be at fault");
    assert!(after(&s, false).retry.is_none());
}
