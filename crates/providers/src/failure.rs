//! What went wrong, as a typed error with one sentence for people. Owns the texts, and what a user could change as data;
//! decides nothing about retries. No text leaves here with a key in it, and none names an option of a program.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use open_agent_model::{ProviderError, ProviderErrorKind as Kind, ProviderHint, Secret};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};

use crate::flavour::Flavour;
use crate::kind::{kind_of_status, kind_of_words, lacks_credit};
use crate::open_files::open_files_limit;
use crate::vendor_error::VendorError;
use crate::{Profile, wait};

/// The most characters of a server's own words that an error repeats.
const EXCERPT: usize = 500;

/// The most bytes of an error that are searched for what they mean.
const SEARCHED: usize = 64 << 10;

/// Where a request went and what must not be repeated about it.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) profile: &'static Profile,
    pub(crate) name: Arc<str>,
    pub(crate) model: Arc<str>,
    /// Scheme, host and path.
    pub(crate) address: Arc<str>,
    pub(crate) path: Arc<str>,
    pub(crate) has_key: bool,
    /// The variable that names a proxy.
    pub(crate) proxy: Option<&'static str>,
    pub(crate) secrets: Arc<[Secret]>,
}

impl Site {
    /// `text` without keys.
    pub(crate) fn hide(&self, text: &str) -> String {
        hide(&self.secrets, text)
    }

    /// `text` without keys, on one line, and not longer than an excerpt.
    pub(crate) fn excerpt(&self, text: &str) -> String {
        // Of a text of megabytes no more is looked at than can be shown. A key must not be cut, or its rest would be
        // shown where it is short.
        let longest = self.secrets.iter().map(|s| s.expose().len()).max().unwrap_or_default();
        let line = one_line(text, EXCERPT * 2 + longest * 2);
        let line = self.hide(&line);
        match line.char_indices().nth(EXCERPT) {
            Some((cut, _)) => format!("{}…", line.get(..cut).unwrap_or_default()),
            None => line,
        }
    }

    /// An answer with a status that is no success.
    pub(crate) fn refused(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ProviderError {
        let body = String::from_utf8_lossy(body);
        let told = VendorError::read(&body);
        let words = if told.message.is_empty() { body.as_ref() } else { &told.message };
        let kind = kind_of_status(status, &told, words);
        let mut error = ProviderError::new(kind, self.sentence(kind, status, headers, words));
        error.hint = self.hint(kind, status, headers, words).map(Box::new);
        if kind == Kind::Authentication && lacks_credit(status.as_u16(), &told, words) {
            error.message = self.no_credit(&format!(" ({})", status.as_u16()), words);
            error.hint = None;
        }
        error.status = Some(status.as_u16());
        error.request_id = ["request-id", "x-request-id", "x-amzn-requestid", "cf-ray"]
            .iter()
            .find_map(|name| Some(self.excerpt(headers.get(*name)?.to_str().ok()?)))
            .or_else(|| told.request_id.as_deref().map(|id| self.excerpt(id)));
        error.retry_after = wait::from_headers(headers).or_else(|| wait::from_body(&body));
        error
    }

    fn sentence(&self, kind: Kind, status: StatusCode, headers: &HeaderMap, words: &str) -> String {
        let (name, code) = (&self.name, status.as_u16());
        if status.is_redirection() {
            let to = self.redirected_to(headers).unwrap_or_else(|| "another address".to_owned());
            return format!("{name} redirects ({code}) from {} to {to}", self.address);
        }
        let said = self.said(status, words);
        match kind {
            _ if code == 407 => {
                let proxy = self.proxy.map(|variable| format!(" in {variable}")).unwrap_or_default();
                format!(
                    "the proxy before {name} wants a login ({code}): {said}; put user and password into its address{proxy}"
                )
            }
            Kind::Authentication if self.has_key => {
                format!("{name} does not accept the key ({code}): {said}")
            }
            Kind::Authentication => format!("{name} wants a key ({code}): {said}"),
            Kind::NotFound => format!(
                "{name}: {code} for model {:?} at {}: {said}; is the model's name right, and is there an {} at this address?",
                self.model,
                self.path,
                self.profile.api.as_str(),
            ),
            Kind::InvalidRequest => {
                format!("{name}: {code} for model {:?} at {}: {said}{}", self.model, self.path, cause(&said))
            }
            _ => format!("{name}: {code} at {}: {said}", self.path),
        }
    }

    fn hint(&self, kind: Kind, status: StatusCode, headers: &HeaderMap, words: &str) -> Option<ProviderHint> {
        if status.is_redirection() {
            return Some(match self.redirected_to(headers) {
                Some(to) => ProviderHint::FollowBaseUrl { to },
                None => ProviderHint::CheckBaseUrl,
            });
        }
        match kind {
            _ if looks_like_html(words) => Some(ProviderHint::CheckBaseUrl),
            Kind::Authentication if self.has_key => {
                Some(ProviderHint::CheckKey { variables: self.key_variables() })
            }
            Kind::Authentication => Some(ProviderHint::SetKey { variables: self.key_variables() }),
            _ => None,
        }
    }

    /// The address that a redirect names, without its query.
    fn redirected_to(&self, headers: &HeaderMap) -> Option<String> {
        let to = headers.get(LOCATION)?.to_str().ok()?;
        Some(self.excerpt(to.split(['?', '#']).next().unwrap_or_default()))
    }

    fn no_credit(&self, code: &str, words: &str) -> String {
        let said = self.said(StatusCode::PAYMENT_REQUIRED, words);
        format!(
            "{}: the account has no credit{code}: {said}; top it up, or use a key of another account",
            self.name
        )
    }

    /// The server's own words, or what stands for them.
    fn said(&self, status: StatusCode, words: &str) -> String {
        if looks_like_html(words) {
            "answered with a web page, not JSON".to_owned()
        } else if words.trim().is_empty() {
            status.canonical_reason().unwrap_or("no reason given").to_owned()
        } else {
            self.excerpt(words)
        }
    }

    fn key_variables(&self) -> Vec<String> {
        key_variables(self.profile)
    }

    /// An error inside a stream that began as a success.
    pub(crate) fn in_stream(&self, data: &[u8]) -> ProviderError {
        let text = String::from_utf8_lossy(data);
        let told = VendorError::read(&text);
        let words = if told.message.is_empty() { text.as_ref() } else { &told.message };
        let words = beginning(words);
        let status = told.code.parse().ok().and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.filter(|s| s.is_client_error() || s.is_server_error());
        let kind = match status {
            Some(status) => kind_of_status(status, &told, words),
            None => kind_of_words(&told, words).unwrap_or(Kind::Server),
        };
        let said = self.excerpt(words);
        let said = if said.is_empty() { self.excerpt(&told.kind) } else { said };
        let said = if said.is_empty() { "no reason given".to_owned() } else { said };
        let broke = if kind == Kind::Authentication && lacks_credit(200, &told, words) {
            self.no_credit("", words)
        } else {
            format!("{} broke off its answer: {said}", self.name)
        };
        let mut error = ProviderError::new(kind, broke);
        error.status = status.map(|s| s.as_u16());
        error.request_id = told.request_id.as_deref().map(|id| self.excerpt(id));
        error.retry_after = wait::from_body(beginning(&text));
        error
    }

    /// No answer at all.
    pub(crate) fn unreachable(&self, error: reqwest::Error) -> ProviderError {
        let error = error.without_url();
        let cause = self.root_cause(&error);
        let mut hint = None;
        let text = if error.is_builder() {
            return ProviderError::new(Kind::Configuration, format!("no request can be made: {cause}"));
        } else if let Some(limit) = open_files_limit(&error) {
            format!("cannot reach {}: {cause}; {limit}", self.name)
        } else if error.is_connect() || error.is_timeout() {
            let about = match self.proxy {
                _ if cause.contains("certificate") => {
                    "; does a proxy sign for it? Name its certificate in SSL_CERT_FILE or NODE_EXTRA_CA_CERTS"
                        .to_owned()
                }
                Some(variable) if chain(&error).contains("proxy authorization required") => {
                    format!("; the proxy in {variable} wants a login: put user and password into its address")
                }
                Some(variable) => {
                    format!("; is the proxy in {variable} running, and are both addresses right?")
                }
                None => {
                    hint = Some(Box::new(ProviderHint::CheckServer));
                    String::new()
                }
            };
            format!("cannot reach {} at {}: {cause}{about}", self.name, self.address)
        } else {
            format!("{} at {} broke the connection: {cause}", self.name, self.address)
        };
        ProviderError { hint, ..self.caused(Kind::Connection, text, error) }
    }

    /// The answer stopped in the middle.
    pub(crate) fn cut<E: Error + Send + Sync + 'static>(&self, error: E) -> ProviderError {
        let text =
            format!("{} broke off in the middle of its answer: {}", self.name, self.root_cause(&error));
        self.caused(Kind::Connection, text, error)
    }

    /// The answer was over before its final event.
    pub(crate) fn unfinished(&self) -> ProviderError {
        let text = format!("{} closed the connection before its answer was finished", self.name);
        ProviderError::new(Kind::Connection, text)
    }

    /// The answer was over and nothing was finished. `head` is its beginning: if that is no event stream at all, it says
    /// what the server meant.
    pub(crate) fn no_answer(&self, headers: &HeaderMap, head: &[u8]) -> ProviderError {
        let Some(words) = words_of(head) else { return self.unfinished() };
        let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let mut what = "what is no answer".to_owned();
        for (name, value) in [("content type", header(CONTENT_TYPE)), ("encoding", header(CONTENT_ENCODING))]
        {
            if let Some(value) = value {
                what.push_str(&format!(", {name} {}", self.excerpt(value)));
            }
        }
        if words.chars().any(|c| c == char::REPLACEMENT_CHARACTER || (c.is_control() && !c.is_whitespace())) {
            return ProviderError::new(
                Kind::Protocol,
                format!("{} sent {what}: bytes that are no text", self.name),
            );
        }
        self.senseless(&what, words.as_bytes())
    }

    /// The server said that its answer is over, and there was none.
    pub(crate) fn empty(&self) -> ProviderError {
        let text = format!("{} ended its answer before it began: the answer was empty", self.name);
        ProviderError::new(Kind::Connection, text)
    }

    /// An error that names the API if `json` is an answer of another one. Asking again would bring the same.
    pub(crate) fn not_foreign(&self, json: &[u8]) -> Result<(), ProviderError> {
        match Flavour::of(json).filter(|f| f.api() != Some(self.profile.api)) {
            None => Ok(()),
            Some(flavour) => {
                let text = format!(
                    "{} at {} answers as the {}, not as the {}",
                    self.name,
                    self.address,
                    flavour.as_str(),
                    self.profile.api.as_str(),
                );
                Err(ProviderError::new(Kind::Configuration, text).with_hint(flavour.hint(self.profile)))
            }
        }
    }

    /// Nothing came for too long.
    pub(crate) fn silent(&self, limit: Duration) -> ProviderError {
        let text = format!("{} at {} sent nothing for {limit:?}", self.name, self.address);
        ProviderError::new(Kind::Timeout, text)
    }

    /// A few bytes came, and no line of them was ever whole.
    pub(crate) fn dripping(&self, limit: Duration) -> ProviderError {
        let text =
            format!("{} at {} sent single bytes, not one whole line for {limit:?}", self.name, self.address);
        ProviderError::new(Kind::Timeout, text)
    }

    /// The answer is nothing that we can read.
    pub(crate) fn senseless(&self, what: &str, data: &[u8]) -> ProviderError {
        let text = String::from_utf8_lossy(data.get(..EXCERPT * 4).unwrap_or(data));
        if looks_like_html(&text) {
            let said = format!("{} at {} answered with a web page, not JSON", self.name, self.address);
            // The wrong server, or one that wants a login first: asking again brings the same page.
            return ProviderError::new(Kind::Configuration, said).with_hint(ProviderHint::CheckBaseUrl);
        }
        if let Err(foreign) = self.not_foreign(data) {
            return foreign;
        }
        ProviderError::new(Kind::Protocol, format!("{} sent {what}: {}", self.name, self.excerpt(&text)))
    }

    /// There is more than any answer has.
    pub(crate) fn too_much(&self, what: &str) -> ProviderError {
        ProviderError::new(Kind::Protocol, format!("{} sent {what}", self.name))
    }

    fn caused<E: Error + Send + Sync + 'static>(&self, kind: Kind, text: String, error: E) -> ProviderError {
        // The chain's texts are ours and the system's, but a server may have a word in them.
        let chain = self.excerpt(&chain(&error));
        ProviderError::new(kind, text).with_source(Cause(chain))
    }

    fn root_cause(&self, error: &dyn Error) -> String {
        let mut last = error;
        while let Some(source) = last.source() {
            last = source;
        }
        self.excerpt(&last.to_string())
    }
}

/// The words of a body that is no event stream, without the fields of one. `None` where it is one, or was to be: nothing
/// but comments, or data that begins as JSON does.
fn words_of(head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head);
    // A character that was cut at the end is no sign of binary data.
    let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
    let mut words = Vec::new();
    for line in text.lines() {
        let field = |name: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'));
        if line.starts_with(':') || field("event") || field("id") || field("retry") || line.trim().is_empty()
        {
            continue;
        }
        let word = if field("data") { line.get(5..).unwrap_or_default().trim() } else { line };
        if word.starts_with(['{', '[']) {
            return None;
        }
        // Half a field's name, where the stream was cut, is no word of anybody.
        if !"data:".starts_with(word) && !"event:".starts_with(word) {
            words.push(word);
        }
    }
    (!words.is_empty()).then(|| words.join("\n"))
}

/// The environment variables that a profile's key is read from.
pub(crate) fn key_variables(profile: &Profile) -> Vec<String> {
    profile.key_variables.iter().copied().chain(["CODEANY_API_KEY"]).map(str::to_owned).collect()
}

/// `text` without any of the secrets.
pub(crate) fn hide(secrets: &[Secret], text: &str) -> String {
    secrets.iter().fold(text.to_owned(), |text, secret| secret.redact(&text))
}

fn beginning(text: &str) -> &str {
    text.get(..text.floor_char_boundary(SEARCHED)).unwrap_or(text)
}

/// The first `limit` characters, at least, of `text` without its line ends and indents.
fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    let mut left = limit;
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        let end = word.char_indices().nth(left).map_or(word.len(), |(end, _)| end);
        let word = word.get(..end).unwrap_or_default();
        line.push_str(word);
        left = left.saturating_sub(word.chars().count() + 1);
        if left == 0 {
            break;
        }
    }
    line
}

/// A cause as text: the libraries' own error values show addresses in `Debug`.
#[derive(Debug)]
struct Cause(String);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Cause {}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

fn cause(said: &str) -> &'static str {
    let lower = said.to_ascii_lowercase();
    let has = |word| lower.contains(word);
    if has("tool") && (has("support") || has("jinja") || has("auto")) {
        "; this model or server may not take tools"
    } else if has("image") || has("vision") {
        "; this model may not take pictures"
    } else if has("model") && (has("not exist") || has("not found") || has("not a valid")) {
        "; is the model's name right?"
    } else if has("unknown url") || has("unrecognized request url") || has("endpoint") {
        "; does this address speak another API?"
    } else {
        ""
    }
}

/// Markup that is for people. Other XML is an error in words as good as any.
pub(crate) fn looks_like_html(text: &str) -> bool {
    let text = text.trim_start();
    let begins = |with: &str| text.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
    let xml = begins("<?xml");
    let page = || text.to_ascii_lowercase().contains("<html");
    text.starts_with('<')
        && if xml { page() } else { !begins("<error") && !begins("<fault") && !begins("<soap") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        Site {
            profile: Profile::by_name("anthropic").unwrap(),
            name: "anthropic".into(),
            model: "m".into(),
            address: "http://h/v1/messages".into(),
            path: "/v1/messages".into(),
            has_key: true,
            proxy: None,
            secrets: Arc::new([Secret::new("sk-canary")]),
        }
    }

    fn refused(status: u16, body: &str) -> ProviderError {
        site().refused(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn kinds_follow_status_and_words() {
        for (status, body, want) in [
            (400, r#"{"error":{"type":"exceed_context_size_error","message":"x"}}"#, Kind::ContextOverflow),
            (400, r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#, Kind::ContextOverflow),
            (400, r#"{"error":{"message":"prompt is too long: 9 tokens > 8"}}"#, Kind::ContextOverflow),
            (400, r#"{"error":{"message":"bad"}}"#, Kind::InvalidRequest),
            (401, "", Kind::Authentication),
            (403, "", Kind::Authentication),
            (404, "", Kind::NotFound),
            (413, "", Kind::ContextOverflow),
            (429, "", Kind::RateLimited),
            (429, r#"{"error":{"code":"insufficient_quota","message":"x"}}"#, Kind::Authentication),
            (408, "", Kind::Timeout),
            (425, "", Kind::Overloaded),
            (504, "", Kind::Timeout),
            (520, "", Kind::Connection),
            (521, "", Kind::Connection),
            (522, "", Kind::Timeout),
            (523, "", Kind::Connection),
            (524, "", Kind::Timeout),
            (500, "", Kind::Server),
            (502, "<html>bad gateway</html>", Kind::Server),
            (503, "", Kind::Overloaded),
            (529, "", Kind::Overloaded),
        ] {
            let error = refused(status, body);
            assert_eq!(error.kind, want, "{status} {body}");
            assert_eq!(error.status, Some(status));
        }
    }

    #[test]
    fn h_log_01_a_server_that_repeats_the_key_is_not_repeated() {
        let error = refused(401, r#"{"error":{"message":"bad key sk-canary"}}"#);
        assert!(error.message.contains("bad key ***"), "{error}");
        assert!(!format!("{error:?}").contains("canary"));
        let mut site = site();
        site.secrets = Arc::new([Secret::new("sk-canary-1234567890")]);
        let body = r#"{"error":{"message":"Incorrect API key provided: sk-canar****7890. Find yours"}}"#;
        let error = site.refused(StatusCode::UNAUTHORIZED, &HeaderMap::new(), body.as_bytes());
        assert!(
            error.message.contains("provided: *** Find yours") && !error.message.contains("canar"),
            "{error}"
        );
        let long = refused(500, &format!("{{\"error\":\"{}\"}}", "sk-canary ".repeat(200)));
        assert!(!long.message.contains("canary") && long.message.chars().count() < 600);
    }

    #[test]
    fn no_more_of_a_text_is_looked_at_than_can_be_shown() {
        assert_eq!(one_line(" a  b\n c ", 100), "a b c");
        assert_eq!(one_line(&"é".repeat(1 << 20), 7), "é".repeat(7));
        assert!(one_line(&"ab \n ".repeat(1 << 20), 100).len() <= 110);
        let key = Secret::new("k1".repeat(600));
        let site = Site { secrets: Arc::new([key.clone()]), ..site() };
        let shown = site.excerpt(&format!("{} {}", "a".repeat(490), key.expose()));
        assert!(shown.ends_with(" ***"), "{shown}");
    }

    #[test]
    fn h_prv_05_texts_name_provider_model_path_and_cause() {
        let error = refused(404, r#"{"error":{"message":"model: m"}}"#);
        for word in ["anthropic", "\"m\"", "/v1/messages", "Anthropic Messages API", "404"] {
            assert!(error.message.contains(word), "{error}");
        }
        let error = refused(400, r#"{"error":{"message":"m does not support tools"}}"#);
        assert!(error.message.contains("may not take tools"), "{error}");
    }

    #[test]
    fn an_account_without_credit_is_told_so() {
        let balance = r#"{"error":{"message":"Insufficient Balance"}}"#;
        let quota = r#"{"error":{"message":"You exceeded your quota","code":"insufficient_quota"}}"#;
        let low = r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#;
        for (status, body) in
            [(402, balance), (402, ""), (429, quota), (429, balance), (400, low), (403, balance)]
        {
            let error = refused(status, body);
            assert_eq!(error.kind, Kind::Authentication, "{status} {body}");
            assert!(error.message.contains("the account has no credit"), "{error}");
            assert!(!error.message.contains("does not accept the key"), "{error}");
            assert!(error.message.contains(&status.to_string()), "{error}");
        }
        let error = site().in_stream(balance.as_bytes());
        assert_eq!(error.kind, Kind::Authentication);
        assert!(error.message.contains("no credit: Insufficient Balance"), "{error}");
        // A quota of a minute comes back.
        let minute = r#"{"error":{"message":"You exceeded your current quota","code":429}}"#;
        assert_eq!(refused(429, minute).kind, Kind::RateLimited);
    }

    #[test]
    fn a_proxy_that_wants_a_login_is_told_so() {
        let proxied = Site { proxy: Some("http_proxy"), ..site() };
        let status = StatusCode::PROXY_AUTHENTICATION_REQUIRED;
        let error = proxied.refused(status, &HeaderMap::new(), b"");
        assert_eq!(error.kind, Kind::Configuration);
        for word in ["proxy", "wants a login (407)", "http_proxy"] {
            assert!(error.message.contains(word), "{error}");
        }
    }

    #[test]
    fn only_markup_for_people_is_a_web_page() {
        let denied = "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code><Message>No</Message></Error>";
        for words in [denied, "<Error><Code>AccessDenied</Code></Error>"] {
            let error = refused(403, words);
            assert!(!error.message.contains("web page") && error.message.contains("AccessDenied"), "{error}");
        }
        for page in [
            "<html>",
            " <!DOCTYPE html><html>",
            "<?xml version='1.0'?>\n<!DOCTYPE html><HTML>",
            "<head>",
            "<é",
        ] {
            assert!(looks_like_html(page), "{page}");
        }
        assert!(!looks_like_html("a <html>"));
    }

    #[test]
    fn a_redirect_and_a_web_page_are_explained() {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, "https://other/v1?k=secret".parse().unwrap());
        let error = site().refused(StatusCode::MOVED_PERMANENTLY, &headers, b"");
        assert_eq!(error.kind, Kind::Configuration);
        assert!(error.message.ends_with("to https://other/v1"), "{error}");
        assert_eq!(
            error.hint.as_deref(),
            Some(&ProviderHint::FollowBaseUrl { to: "https://other/v1".into() })
        );
        let error = refused(502, "<html>");
        assert!(error.message.contains("web page"), "{error}");
        assert_eq!(error.hint.as_deref(), Some(&ProviderHint::CheckBaseUrl));
    }
}
