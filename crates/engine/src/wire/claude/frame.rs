//! The frames as structs: names and order of their fields, nothing else.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use open_agent_model::{
    Answer, BackgroundId, BackgroundWork, Cost, Question, QueueId, RawJson, RunId, SessionId, ToolUseId,
    Usage,
};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::Denial;
use crate::ModelUse;

/// A list of what does not exist yet.
type Nothing = [(); 0];

#[derive(Serialize)]
pub(super) struct Init<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub subtype: &'static str,
    pub cwd: Cow<'a, str>,
    pub session_id: &'a str,
    pub tools: &'a [String],
    pub mcp_servers: Nothing,
    pub model: &'a str,
    #[serde(rename = "permissionMode")]
    pub permission_mode: &'static str,
    pub slash_commands: Nothing,
    #[serde(rename = "apiKeySource")]
    pub api_key_source: &'a str,
    pub output_style: &'static str,
    pub agents: Nothing,
    pub skills: Nothing,
    pub plugins: Nothing,
    pub open_agent_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    pub uuid: Uuid,
}

/// All other frames of type `system`: each sets the fields that it has.
#[derive(Serialize)]
pub(super) struct System<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    subtype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<&'a ToolUseId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision_reason_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<&'a Question>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<&'a Answer>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue_ids: Vec<QueueId>,
    #[serde(flatten)]
    pub retry: Option<ApiRetry<'a>>,
    #[serde(flatten)]
    pub switched: Option<Switched<'a>>,
    #[serde(flatten)]
    pub task: Option<TaskFrame<'a>>,
    session_id: SessionId,
    uuid: Uuid,
}

/// What a frame `system/api_retry` says.
#[derive(Serialize)]
pub(super) struct ApiRetry<'a> {
    pub attempt: u32,
    pub max_retries: u32,
    pub retry_delay_ms: u64,
    pub error_status: Option<u16>,
    pub error: String,
    /// Ours: the model that is asked next.
    pub model: &'a str,
}

/// What a frame `system/model_switched` says; it is ours.
#[derive(Serialize)]
pub(super) struct Switched<'a> {
    pub from_model: &'a str,
    pub to_model: &'a str,
}

/// What frames `system/task_started` and `system/task_notification` say.
#[derive(Serialize)]
pub(super) struct TaskFrame<'a> {
    pub task_id: &'a BackgroundId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_file: Option<PathBuf>,
}

impl<'a> TaskFrame<'a> {
    pub(super) fn new(work: &'a BackgroundWork, folder: Option<&Path>) -> Self {
        let (task_id, output_file) = (&work.id, work.output.as_ref().map(|output| output.path(folder)));
        Self { task_id, task_type: None, description: None, status: None, summary: None, output_file }
    }
}

impl System<'_> {
    pub(super) fn new(subtype: &'static str, session_id: SessionId, uuid: Uuid) -> Self {
        Self {
            kind: "system",
            subtype,
            tool_name: None,
            tool_use_id: None,
            decision_reason_type: None,
            message: None,
            ask_id: None,
            question: None,
            answer: None,
            queue_ids: Vec::new(),
            retry: None,
            switched: None,
            task: None,
            session_id,
            uuid,
        }
    }
}

#[derive(Serialize)]
pub(super) struct ApiMessage<'a, C> {
    pub id: &'a str,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub role: &'static str,
    pub model: &'a str,
    pub content: C,
    pub stop_reason: Option<&'a str>,
    pub stop_sequence: Option<&'a str>,
    pub usage: ApiUsage,
}

/// A frame of type `assistant`.
#[derive(Serialize)]
pub(super) struct Spoken<'a, C> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub message: ApiMessage<'a, C>,
    pub parent_tool_use_id: Option<&'a str>,
    pub session_id: &'a str,
    pub uuid: Uuid,
    #[serde(flatten)]
    pub extra: Extra<'a>,
}

/// What only some `assistant` frames have.
#[derive(Clone, Default, Serialize)]
pub(super) struct Extra<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aborted: bool,
}

/// A frame of type `user`.
#[derive(Serialize)]
pub(super) struct Told<'a, C> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub message: UserMessage<C>,
    pub parent_tool_use_id: Option<&'a str>,
    pub session_id: &'a str,
    pub uuid: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_use_result: Option<&'a RawJson>,
    #[serde(rename = "isSynthetic", skip_serializing_if = "std::ops::Not::not")]
    pub synthetic: bool,
}

#[derive(Serialize)]
pub(super) struct UserMessage<C> {
    pub role: &'static str,
    pub content: C,
}

#[derive(Serialize)]
pub(super) struct Progress<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub tool_use_id: &'a ToolUseId,
    pub tool_name: &'a str,
    pub parent_tool_use_id: Option<&'a str>,
    pub elapsed_time_seconds: f64,
    pub line: &'a str,
    pub session_id: &'a str,
    pub uuid: Uuid,
}

#[derive(Serialize)]
pub(super) struct RunResult<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub subtype: &'static str,
    pub is_error: bool,
    pub duration_ms: u64,
    pub duration_api_ms: u64,
    pub num_turns: u32,
    pub result: &'a str,
    pub stop_reason: Option<&'a str>,
    pub session_id: &'a str,
    /// `null` if a price is not known: an unknown price is not 0.
    pub total_cost_usd: Option<f64>,
    pub usage: ApiUsage,
    #[serde(rename = "modelUsage")]
    pub model_usage: ModelUsage<'a>,
    pub permission_denials: Vec<PermissionDenial<'a>>,
    pub terminal_reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<&'a Vec<String>>,
    pub num_model_calls: u32,
    pub uuid: Uuid,
}

#[derive(Serialize)]
pub(super) struct ApiUsage {
    input_tokens: u64,
    cache_creation_input_tokens: u64,
    cache_read_input_tokens: u64,
    output_tokens: u64,
    cache_creation: CacheCreation,
}

#[derive(Serialize)]
struct CacheCreation {
    ephemeral_5m_input_tokens: u64,
    ephemeral_1h_input_tokens: u64,
}

impl From<&Usage> for ApiUsage {
    fn from(usage: &Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            cache_creation_input_tokens: written(usage),
            cache_read_input_tokens: usage.cache_read_input_tokens,
            output_tokens: usage.output_tokens,
            cache_creation: CacheCreation {
                ephemeral_5m_input_tokens: usage.cache_write_5m_input_tokens,
                ephemeral_1h_input_tokens: usage.cache_write_1h_input_tokens,
            },
        }
    }
}

fn written(usage: &Usage) -> u64 {
    usage.cache_write_5m_input_tokens + usage.cache_write_1h_input_tokens
}

/// A map from model to what was used of it.
pub(super) struct ModelUsage<'a>(pub &'a BTreeMap<Arc<str>, ModelUse>);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OneModel {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_input_tokens: u64,
    cache_creation_input_tokens: u64,
    web_search_requests: u64,
    #[serde(rename = "costUSD")]
    cost_usd: Option<f64>,
}

impl Serialize for ModelUsage<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.0.len()))?;
        for (model, ModelUse { usage, cost, .. }) in self.0 {
            let one = OneModel {
                input_tokens: usage.input_tokens,
                output_tokens: usage.output_tokens,
                cache_read_input_tokens: usage.cache_read_input_tokens,
                cache_creation_input_tokens: written(usage),
                web_search_requests: 0,
                cost_usd: cost.map(Cost::usd),
            };
            map.serialize_entry(&**model, &one)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
pub(super) struct PermissionDenial<'a> {
    tool_name: &'a str,
    tool_use_id: &'a ToolUseId,
    tool_input: &'a RawJson,
}

impl<'a> From<&'a Denial> for PermissionDenial<'a> {
    fn from(denial: &'a Denial) -> Self {
        Self { tool_name: &denial.tool, tool_use_id: &denial.tool_use_id, tool_input: &denial.input }
    }
}
