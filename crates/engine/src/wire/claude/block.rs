//! Content blocks in the shape of the Messages API.

use open_agent_model::{Block, RawJson, ResultBlock, Source, ToolUseId};
use serde::Serialize;

/// A block, or one that we do not know, as it came.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum AnyBlock<'a> {
    Known(ApiBlock<'a>),
    Raw(&'a RawJson),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ApiBlock<'a> {
    Text {
        text: &'a str,
    },
    Image {
        source: ApiSource<'a>,
    },
    Document {
        source: ApiSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
    },
    /// What MCP calls so; the API has no such block.
    Resource {
        resource: Resource<'a>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a RawJson,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: Content<'a>,
        is_error: bool,
    },
}

/// Where bytes are. A blob goes out as its bytes, for the reader has no blobs.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ApiSource<'a> {
    Base64 {
        media_type: &'a str,
        data: &'a str,
    },
    Url {
        url: &'a str,
    },
    /// Bytes that are lost.
    Blob {
        media_type: &'a str,
        id: &'a str,
    },
}

#[derive(Serialize)]
pub(super) struct Resource<'a> {
    uri: &'a str,
    text: &'a str,
}

/// A tool's answer: a plain text as a plain string.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(&'a str),
    Blocks(Vec<ApiBlock<'a>>),
}

pub(super) fn api_blocks(blocks: &[Block]) -> impl Iterator<Item = AnyBlock<'_>> {
    blocks.iter().map(|block| {
        AnyBlock::Known(match block {
            Block::Text(text) => ApiBlock::Text { text },
            Block::Image(source) => ApiBlock::Image { source: api_source(source) },
            Block::Document { source, title } => {
                ApiBlock::Document { source: api_source(source), title: title.as_deref() }
            }
            Block::Thinking(t) => ApiBlock::Thinking {
                thinking: &t.text,
                signature: t.signature.as_deref().unwrap_or_default(),
            },
            Block::RedactedThinking { data } => ApiBlock::RedactedThinking { data },
            Block::ToolUse(u) => ApiBlock::ToolUse { id: u.id.as_str(), name: &u.name, input: &u.input },
            Block::ToolResult(r) => api_result(&r.tool_use_id, &r.content, r.is_error),
            Block::Opaque { raw } => return AnyBlock::Raw(raw),
        })
    })
}

pub(super) fn api_result<'a>(id: &'a ToolUseId, content: &'a [ResultBlock], is_error: bool) -> ApiBlock<'a> {
    let content = match content {
        [ResultBlock::Text { text }] => Content::Text(text),
        parts => Content::Blocks(parts.iter().map(api_part).collect()),
    };
    ApiBlock::ToolResult { tool_use_id: id.as_str(), content, is_error }
}

fn api_source(source: &Source) -> ApiSource<'_> {
    match (source, source.base64()) {
        (_, Some((media_type, data))) => ApiSource::Base64 { media_type, data },
        (Source::Url { url }, _) => ApiSource::Url { url },
        (Source::Inline { media_type, data }, _) => ApiSource::Base64 { media_type, data },
        (Source::Blob { media_type, blob }, _) => ApiSource::Blob { media_type, id: blob.id().as_str() },
    }
}

fn api_part(part: &ResultBlock) -> ApiBlock<'_> {
    match part {
        ResultBlock::Text { text } => ApiBlock::Text { text },
        ResultBlock::Image { source } => ApiBlock::Image { source: api_source(source) },
        ResultBlock::Document { source, title } => {
            ApiBlock::Document { source: api_source(source), title: title.as_deref() }
        }
        ResultBlock::Resource { uri, text } => ApiBlock::Resource { resource: Resource { uri, text } },
    }
}
