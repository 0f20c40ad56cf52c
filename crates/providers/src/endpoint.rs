//! One server: its address, its headers, its client. Owns sending and the reading of refusals; knows no message.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt as _;
use open_agent_http::{Client, ClientOptions, client, proxy_variable};
use open_agent_model::{ModelStream, ProviderError, ProviderErrorKind as Kind, Secret};
use reqwest::Response;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout, timeout_at};

use crate::address::Address;
use crate::events::EventStream;
use crate::failure::{Site, hide};
use crate::frame::Decode;
use crate::{Api, ProviderConfig};

/// What is read of an error's body, and for how long at most.
const LARGEST_REFUSAL: usize = 64 << 10;
const REFUSAL_TIME: Duration = Duration::from_secs(10);

pub(crate) struct Endpoint {
    address: Address,
    headers: HeaderMap,
    config: ProviderConfig,
    secrets: Arc<[Secret]>,
    /// Made at the first request: loading certificates is IO.
    client: OnceLock<Result<Client, ProviderError>>,
}

impl Endpoint {
    pub(crate) fn new(config: ProviderConfig) -> Result<Self, ProviderError> {
        let address = config.address()?;
        let headers = headers(&config)?;
        // As they are sent: a line end that came along from a file is not what a server would repeat.
        let secrets = config.key.iter().chain(config.headers.iter().map(|(_, value)| value));
        let secrets = secrets.map(|s| Secret::new(s.expose().trim())).collect();
        Ok(Self { address, headers, config, secrets, client: OnceLock::new() })
    }

    pub(crate) fn config(&self) -> &ProviderConfig {
        &self.config
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn site(&self, address: &Address, model: &Arc<str>) -> Arc<Site> {
        Arc::new(Site {
            profile: self.config.profile,
            name: self.config.name.as_str().into(),
            // Some write the key where another thing belongs, and error texts repeat these.
            model: hide(&self.secrets, model).into(),
            address: hide(&self.secrets, address.shown()).into(),
            path: hide(&self.secrets, address.path()).into(),
            has_key: self.config.key.is_some(),
            proxy: proxy_variable(&self.config.env, address.url().scheme() == "https"),
            secrets: Arc::clone(&self.secrets),
        })
    }

    /// Posts and gives the events of the answer.
    pub(crate) async fn stream<D: Decode + 'static>(
        &self,
        body: Vec<u8>,
        site: Arc<Site>,
        decoder: D,
    ) -> Result<ModelStream, ProviderError> {
        let response = self.post(&self.address, body, &site).await?;
        let headers = response.headers().clone();
        let body = response.bytes_stream().boxed();
        let events = EventStream::new(body, decoder, site, self.config.idle_timeout);
        Ok(Box::pin(events.with_headers(headers)))
    }

    /// Posts and waits for the answer's head. An answer that is no success is an error.
    pub(crate) async fn post(
        &self,
        address: &Address,
        body: Vec<u8>,
        site: &Site,
    ) -> Result<Response, ProviderError> {
        let request = self.client()?.post(address.url().clone()).headers(self.headers.clone()).body(body);
        let limit = self.config.idle_timeout;
        let response = timeout(limit, request.send()).await.map_err(|_| site.silent(limit))?;
        let response = response.map_err(|e| site.unreachable(e))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = read(response, LARGEST_REFUSAL, limit.min(REFUSAL_TIME)).await;
        Err(site.refused(status, &headers, &body))
    }

    fn client(&self) -> Result<&Client, ProviderError> {
        let made = self.client.get_or_init(|| {
            if let Some(client) = &self.config.client {
                return Ok(client.clone());
            }
            let options = ClientOptions::for_url(self.address.url().as_str());
            client(&self.config.env, &options)
                .map_err(|e| ProviderError::new(Kind::Configuration, e.to_string()).with_source(e))
        });
        made.as_ref().map_err(Clone::clone)
    }
}

/// As much of the body as comes in `time`, up to `limit` bytes.
pub(crate) async fn read(response: Response, limit: usize, time: Duration) -> Vec<u8> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    let end = Instant::now() + time;
    while let Ok(Some(Ok(chunk))) = timeout_at(end, chunks.next()).await {
        body.extend_from_slice(&chunk);
        if body.len() >= limit {
            body.truncate(limit);
            break;
        }
    }
    body
}

fn headers(config: &ProviderConfig) -> Result<HeaderMap, ProviderError> {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    map.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    let anthropic = config.profile.api == Api::Anthropic;
    if anthropic {
        map.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        if !config.betas.is_empty() {
            map.insert("anthropic-beta", value(&config.betas.join(","), "a beta's name")?);
        }
    }
    if let Some(key) = &config.key {
        let what = "the API key";
        if anthropic && !config.bearer {
            map.insert("x-api-key", secret(key.expose(), what)?);
        } else {
            map.insert(AUTHORIZATION, secret(&format!("Bearer {}", key.expose().trim()), what)?);
        }
    }
    for (name, content) in &config.headers {
        let key = HeaderName::try_from(name.as_str())
            .map_err(|_| ProviderError::new(Kind::Configuration, format!("{name:?} is no header name")))?;
        map.insert(key, secret(content.expose(), name)?);
    }
    Ok(map)
}

fn value(text: &str, what: &str) -> Result<HeaderValue, ProviderError> {
    HeaderValue::from_str(text.trim()).map_err(|_| {
        let text = format!("{what} has characters that no header can carry, such as a line end");
        ProviderError::new(Kind::Configuration, text)
    })
}

fn secret(text: &str, what: &str) -> Result<HeaderValue, ProviderError> {
    let mut value = value(text, what)?;
    value.set_sensitive(true);
    Ok(value)
}
