//! The stored form of every entry, held fast: `fixtures/v1.jsonl` holds each kind of entry, each variant of each enum that an
//! entry can hold, and each optional field present and absent. What is read and written again has the same bytes.
//!
//! The lists are built by exhaustive matches: a new variant does not compile before it is in the fixture. Write the file anew
//! with `UPDATE_GOLDEN=1`; a line that changes is a stored format that changes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use open_agent_model::{
    Access, AgentId, Answer, AskId, AskSource, BackgroundEnd, BackgroundId, BackgroundKind,
    BackgroundOutcome, BackgroundWork, Blob, Block, BrokenInput, CallId, Change, Chosen, Cost, CostSource,
    Decision, Effect, Effort, FileSeen, FileStamp, InodeStamp, Layer, Message, MessageId, Open, Outcome,
    OutputRef, PermissionMode, Prefix, Provenance, ProviderErrorKind, Question, QuestionItem, QuestionKind,
    QuestionOption, QueueId, RawJson, ResultBlock, ResultText, Role, Ruling, RunId, RunStatus, Section, Seq,
    SessionId, Slot, Source, StopReason, Thinking, ThinkingMode, Timestamp, ToolResult, ToolSpec, ToolUse,
    ToolUseId, Usage,
};
use open_agent_session::{
    BackgroundEnded, Decoded, Done, Failure, ForkedFrom, MediaScope, ModelDone, ModelFailed, ModelSettings,
    Moved, Notice, NoticeKind, Opened, Origin, Owner, Queued, Retry, Ruled, RunEnded, RunLimits, RunStarted,
    SessionEntry, SessionStarted, Stored, ToolScheduling, ToolsChanged, UserMessage, Withheld, blob_id,
    decode, encode,
};

/// All values of an enum without data. A variant that is missing here does not compile.
macro_rules! all {
    ($ty:ident: $($variant:ident),+ $(,)?) => {{
        fn is_listed(value: $ty) {
            match value {
                $($ty::$variant => (),)+
            }
        }
        let all = [$($ty::$variant),+];
        all.into_iter().for_each(is_listed);
        all
    }};
}

const CALL: CallId = CallId { turn: 3, index: 1 };

fn odd_path() -> PathBuf {
    PathBuf::from(OsString::from_vec(b"/tmp/\xff\xfe".to_vec()))
}

fn raw(text: &str) -> RawJson {
    RawJson::parse(text).unwrap()
}

fn message(role: Role, content: Vec<Block>, model: Option<&str>) -> Arc<Message> {
    Arc::new(Message { id: MessageId::from_number(5), role, content, model: model.map(Into::into) })
}

fn said(text: &str) -> Arc<Message> {
    message(Role::User, vec![Block::Text(text.into())], None)
}

fn blob() -> Blob {
    Blob::new(blob_id(b"bytes"), 5)
}

fn sources() -> Vec<Source> {
    let is_listed = |source: &Source| match source {
        Source::Inline { .. } | Source::Url { .. } | Source::Blob { .. } => (),
    };
    let all = vec![
        Source::Inline { media_type: "image/png".into(), data: "AA==".into() },
        Source::Url { url: "https://a.example/b".into() },
        Source::Blob { media_type: "image/png".into(), blob: blob() },
    ];
    all.iter().for_each(is_listed);
    all
}

fn result_blocks() -> Vec<ResultBlock> {
    let is_listed = |block: &ResultBlock| match block {
        ResultBlock::Text { .. }
        | ResultBlock::Image { .. }
        | ResultBlock::Document { .. }
        | ResultBlock::Resource { .. } => (),
    };
    let mut all = vec![
        ResultBlock::text("text"),
        ResultBlock::Document { source: sources().remove(1), title: Some("title".into()) },
        ResultBlock::Document { source: sources().remove(0), title: None },
        ResultBlock::Resource { uri: "a:b".into(), text: "text".into() },
        ResultBlock::Text { text: ResultText::Blob(blob()) },
        ResultBlock::Resource { uri: "a:b".into(), text: ResultText::Blob(blob()) },
    ];
    all.extend(sources().into_iter().map(|source| ResultBlock::Image { source }));
    all.iter().for_each(is_listed);
    all
}

fn blocks() -> Vec<Block> {
    let is_listed = |block: &Block| match block {
        Block::Text(_)
        | Block::Image(_)
        | Block::Document { .. }
        | Block::Thinking(_)
        | Block::RedactedThinking { .. }
        | Block::ToolUse(_)
        | Block::ToolResult(_)
        | Block::Opaque { .. } => (),
    };
    let tool_use = |broken| {
        Block::ToolUse(ToolUse {
            id: ToolUseId::new("a"),
            name: "Read".into(),
            input: raw(r#"{"b": 1.0e2}"#),
            broken,
        })
    };
    let mut all = vec![
        Block::Text("text \u{2028}\u{0}é".into()),
        Block::Document { source: sources().remove(0), title: Some("title".into()) },
        Block::Document { source: sources().remove(1), title: None },
        Block::Thinking(Thinking { text: "hm".into(), signature: None, details: None }),
        Block::Thinking(Thinking {
            text: String::new(),
            signature: Some("s".into()),
            details: Some(raw("[1]")),
        }),
        Block::RedactedThinking { data: "xyz".into() },
        tool_use(None),
        tool_use(Some(BrokenInput { raw: "{".into(), error: "cut".into(), cut: true })),
        tool_use(Some(BrokenInput { raw: "x".into(), error: "no JSON".into(), cut: false })),
        Block::Opaque { raw: raw(r#"{"type":"later"}"#) },
    ];
    all.extend(sources().into_iter().map(Block::Image));
    for is_error in [false, true] {
        let result = ToolResult { tool_use_id: ToolUseId::new("a"), content: result_blocks(), is_error };
        all.push(Block::ToolResult(result));
    }
    all.iter().for_each(is_listed);
    all
}

fn accesses() -> Vec<Access> {
    let is_listed = |access: &Access| match access {
        Access::Read(_) | Access::Write(_) | Access::Exec(_) | Access::Opaque(_) => (),
    };
    let all = vec![
        Access::Read("/a".into()),
        Access::Read(odd_path()),
        Access::Write(odd_path()),
        Access::Exec("ls".into()),
        Access::Opaque("mail".into()),
    ];
    all.iter().for_each(is_listed);
    all
}

fn changes() -> Vec<Change> {
    let is_listed = |change: &Change| match change {
        Change::Put { .. } | Change::Cwd(_) | Change::FileSeen(_) => (),
    };
    let stamp = |inode| FileStamp { modified_ns: -5, len: 3, inode };
    let inode = InodeStamp { number: 1, changed_ns: 2, mode: 0o644, links: 1 };
    let all = vec![
        Change::Put { slot: Slot("todo".into()), value: raw("[1, 2]") },
        Change::Cwd(odd_path()),
        Change::FileSeen(FileSeen { path: odd_path(), stamp: stamp(None) }),
        Change::FileSeen(FileSeen { path: "/a".into(), stamp: stamp(Some(inode)) }),
    ];
    all.iter().for_each(is_listed);
    all
}

fn stops() -> Vec<StopReason> {
    let is_listed = |stop: &StopReason| match stop {
        StopReason::EndTurn
        | StopReason::StopSequence
        | StopReason::ToolUse
        | StopReason::MaxTokens
        | StopReason::PauseTurn
        | StopReason::Refusal
        | StopReason::ContextWindowExceeded
        | StopReason::Other(_) => (),
    };
    let all = vec![
        StopReason::EndTurn,
        StopReason::StopSequence,
        StopReason::ToolUse,
        StopReason::MaxTokens,
        StopReason::PauseTurn,
        StopReason::Refusal,
        StopReason::ContextWindowExceeded,
        StopReason::Other("a later word".into()),
    ];
    all.iter().for_each(is_listed);
    all
}

/// The words of an open enum, and one that this version does not know.
fn open<T>(known: impl IntoIterator<Item = T>) -> Vec<Open<T>> {
    known.into_iter().map(Open::Known).chain([Open::Unknown("a_later_word".into())]).collect()
}

fn settings() -> Vec<ModelSettings> {
    let is_listed = |thinking: &ThinkingMode| match thinking {
        ThinkingMode::Adaptive | ThinkingMode::Enabled { .. } | ThinkingMode::Disabled => (),
    };
    let thinking =
        [ThinkingMode::Adaptive, ThinkingMode::Enabled { budget_tokens: 7 }, ThinkingMode::Disabled];
    thinking.iter().for_each(is_listed);
    let of = |thinking, effort| ModelSettings { model: "m".into(), thinking, effort };
    let efforts = all!(Effort: Low, Medium, High, Max);
    let mut all = vec![of(None, None)];
    all.extend(thinking.map(|thinking| of(Some(thinking), None)));
    all.extend(efforts.map(|effort| of(None, Some(effort))));
    all
}

fn usage() -> Usage {
    Usage {
        input_tokens: 1,
        output_tokens: 2,
        cache_read_input_tokens: 3,
        cache_write_5m_input_tokens: 4,
        cache_write_1h_input_tokens: 5,
    }
}

fn session_entries() -> Vec<SessionEntry> {
    let started = SessionStarted {
        root: "/project".into(),
        agent: AgentId::main(),
        parent: None,
        forked_from: None,
        product: "open-agent 0.1.0".into(),
    };
    let session = SessionId::new("other").unwrap();
    let forked_from = Some(ForkedFrom { session: session.clone(), through: Seq(9) });
    let mut all = vec![
        SessionEntry::SessionStarted(started.clone()),
        SessionEntry::SessionStarted(SessionStarted {
            root: odd_path(),
            parent: Some(session),
            forked_from,
            ..started
        }),
        SessionEntry::Moved(Moved { root: odd_path() }),
        SessionEntry::Opened(Opened { epoch: 2, owner: Owner("process 7".into()) }),
        SessionEntry::Delivered { ids: vec![QueueId::from_number(1), QueueId::from_number(2)] },
        SessionEntry::Unqueued { id: QueueId::from_number(1) },
        SessionEntry::Prefix(Arc::new(Prefix {
            system: vec![Section { name: "base".into(), text: "Be kind.".into() }],
            tools: vec![tool_spec()],
        })),
        SessionEntry::ToolsChanged(ToolsChanged {
            added: vec![tool_spec()],
            removed: vec!["Old".into()],
            message: said("changed"),
        }),
        SessionEntry::ToolsChanged(ToolsChanged {
            added: Vec::new(),
            removed: Vec::new(),
            message: said("-"),
        }),
        SessionEntry::Interrupted {},
        SessionEntry::BlobsLost { ids: vec![blob_id(b"bytes"), blob_id(b"")] },
    ];
    all.extend(settings().into_iter().map(SessionEntry::Configured));
    for origin in open(all!(Origin: Prompt, Continuation)) {
        all.push(SessionEntry::User(UserMessage { message: said("hello"), origin: origin.clone() }));
        for steer in [false, true] {
            let id = QueueId::from_number(1);
            all.push(SessionEntry::Queued(Queued {
                id,
                message: said("hello"),
                origin: origin.clone(),
                steer,
            }));
        }
    }
    for scope in all!(MediaScope: LastMessage, All) {
        all.push(SessionEntry::Withheld(Withheld { scope, reason: "too large".into() }));
    }
    for kind in open(all!(NoticeKind:
        RequestFitted, InputTruncated, UsageMissing, MediaWithheld, NoText, VariablesRemoved, ToolsChanged, LogDamaged,
        BlobsLost, RequestRepeated))
    {
        all.push(SessionEntry::Noticed(Notice { kind, text: "a notice".into() }));
    }
    all
}

fn tool_spec() -> ToolSpec {
    ToolSpec { name: "Read".into(), description: "Reads.".into(), input_schema: raw(r#"{"type":"object"}"#) }
}

fn run_entries() -> Vec<SessionEntry> {
    let mut all = Vec::new();
    let limits = |max_turns, scheduling| RunLimits { max_turns, max_model_calls: 500, scheduling };
    let run = |settings: &ModelSettings, mode, limits| {
        let settings = settings.clone();
        SessionEntry::RunStarted(RunStarted { run: RunId::from_number(4), settings, mode, limits })
    };
    for mode in all!(PermissionMode: Default, AcceptEdits, Plan, Auto, DontAsk, BypassPermissions) {
        for scheduling in all!(ToolScheduling: Ordered, ReadsFirst) {
            all.push(run(&settings()[0], mode, limits(Some(3), scheduling)));
        }
    }
    all.push(run(&settings()[1], PermissionMode::Default, limits(None, ToolScheduling::Ordered)));
    for status in all!(RunStatus:
        Success, ErrorMaxTurns, ErrorMaxBudgetUsd, ErrorMaxModelCalls, ErrorDuringExecution, Cancelled, Refusal, Waiting)
    {
        all.push(SessionEntry::RunEnded(RunEnded { status, stop: None, errors: Vec::new() }));
    }
    let errors = vec!["wrong".into()];
    let stop = Some(StopReason::MaxTokens);
    all.push(SessionEntry::RunEnded(RunEnded { status: RunStatus::Success, stop, errors }));
    all
}

fn model_entries() -> Vec<SessionEntry> {
    let mut all = Vec::new();
    let done = |stop: StopReason| ModelDone {
        turn: 3,
        message: message(Role::Assistant, Vec::new(), None),
        stop,
        stop_sequence: None,
        usage: usage(),
        cost: None,
        cost_source: None,
        api_ms: 12,
        ttft_ms: None,
        vendor_id: None,
        answered_by: None,
    };
    all.extend(stops().into_iter().map(done).map(SessionEntry::ModelDone));
    for source in open(all!(CostSource: Computed, Reported, Estimated)) {
        all.push(SessionEntry::ModelDone(ModelDone {
            message: message(Role::Assistant, blocks(), Some("m")),
            stop_sequence: Some("END".into()),
            cost: Some(Cost(1_500)),
            cost_source: Some(source),
            ttft_ms: Some(3),
            vendor_id: Some("msg_1".into()),
            answered_by: Some("m-2".into()),
            ..done(StopReason::StopSequence)
        }));
    }
    let failed = ModelFailed {
        model: "m".into(),
        error: None,
        partial: None,
        usage: usage(),
        cost: None,
        cost_source: None,
        api_ms: 1,
        retry: None,
    };
    all.push(SessionEntry::ModelFailed(failed.clone()));
    let kinds = all!(ProviderErrorKind:
        Configuration, Authentication, NotFound, InvalidRequest, ContextOverflow, RateLimited, Overloaded, Server,
        Connection, Timeout, Protocol);
    for kind in open(kinds) {
        let failure = Failure { kind: kind.clone(), message: "no".into(), status: None, request_id: None };
        all.push(SessionEntry::ModelFailed(ModelFailed { error: Some(failure), ..failed.clone() }));
    }
    let failure = Failure {
        kind: ProviderErrorKind::Server.into(),
        message: "no".into(),
        status: Some(500),
        request_id: Some("req_1".into()),
    };
    let retry = Retry { at: Timestamp(9), delay_ms: 2, attempt: 1, max_retries: 3, model: "n".into() };
    all.push(SessionEntry::ModelFailed(ModelFailed {
        error: Some(failure),
        partial: Some(said("half")),
        cost: Some(Cost(7)),
        cost_source: Some(CostSource::Computed.into()),
        retry: Some(retry),
        ..failed
    }));
    all
}

fn call_entries() -> Vec<SessionEntry> {
    let mut all = vec![SessionEntry::Started { call: CALL }];
    for effect in all!(Effect: ReadOnly, Idempotent, Unsafe) {
        for decision in all!(Decision: Allow, Deny) {
            for layer in open(all!(Layer: Call, AllowedTools, Mode)) {
                let ruling = Ruling { decision, layer, rule: None, reason: "because".into() };
                let access = accesses();
                all.push(SessionEntry::Ruled(Ruled { call: CALL, input: None, access, effect, ruling }));
            }
        }
    }
    let ruling = Ruling {
        decision: Decision::Allow,
        layer: Layer::AllowedTools.into(),
        rule: Some("Read".into()),
        reason: "because".into(),
    };
    let (input, access, effect) = (Some(raw(r#"{"a": 1}"#)), Vec::new(), Effect::ReadOnly);
    all.push(SessionEntry::Ruled(Ruled { call: CALL, input, access, effect, ruling }));
    for outcome in open(all!(Outcome: Ok, Error, Refused, TimedOut, Interrupted, Lost, Closed)) {
        let done = Done::without_result(CALL, Outcome::Ok, "text");
        all.push(SessionEntry::Done(Done { outcome, ..done }));
    }
    for provenance in all!(Provenance: Trusted, Untrusted) {
        all.push(SessionEntry::Done(Done {
            content: result_blocks(),
            details: Some(raw(r#"{"lines": 3}"#)),
            provenance,
            changes: changes(),
            ms: 5,
            ..Done::without_result(CALL, Outcome::Ok, "")
        }));
    }
    for source in all!(AskSource: Permission, Tool, Session) {
        for call in [None, Some(CALL)] {
            let ask = AskId { source, call, n: 2 };
            all.push(SessionEntry::Answered { ask, answer: Answer::text("yes") });
        }
    }
    let ask = AskId::of_tool(CALL, 0);
    let answer = Answer {
        chosen: vec![Chosen { item: 0, label: "a".into() }],
        text: None,
        data: Some(raw("{}")),
        by: "user".into(),
    };
    all.push(SessionEntry::Answered { ask, answer });
    for kind in open(all!(QuestionKind: Input)) {
        all.push(SessionEntry::Asked { ask, question: Question { kind, ..Question::text("why?") } });
    }
    let option = |description: Option<&str>, preview: Option<&str>| QuestionOption {
        label: "a".into(),
        description: description.map(Into::into),
        preview: preview.map(Into::into),
    };
    let item = QuestionItem {
        text: "which?".into(),
        header: Some("Branch".into()),
        options: vec![option(None, None), option(Some("more"), Some("code"))],
        multi: true,
    };
    let question = Question { kind: QuestionKind::Input.into(), items: vec![item], data: Some(raw("[]")) };
    all.push(SessionEntry::Asked { ask, question });
    all
}

fn background_entries() -> Vec<SessionEntry> {
    let outputs = |output: &OutputRef| match output {
        OutputRef::Session(_) | OutputRef::File(_) => (),
    };
    let output = [OutputRef::Session("scratch/a".into()), OutputRef::File(odd_path())];
    output.iter().for_each(outputs);
    let mut all = Vec::new();
    for output in output.into_iter().map(Some).chain([None]) {
        for kind in open(all!(BackgroundKind: Bash)) {
            let task = BackgroundWork {
                id: BackgroundId("bash_3_1".into()),
                kind,
                description: "make".into(),
                call: CALL,
                output: output.clone(),
                started: Timestamp(-1),
            };
            all.push(SessionEntry::BackgroundStarted(task));
        }
    }
    for outcome in open(all!(BackgroundOutcome: Completed, Failed, Stopped, TimedOut, Lost)) {
        for detail in [None, Some("ended with exit code 3".to_owned())] {
            let end = BackgroundEnd { outcome: outcome.clone(), detail };
            let id = BackgroundId("bash_3_1".into());
            all.push(SessionEntry::BackgroundEnded(BackgroundEnded { id, end, message: said("over") }));
        }
    }
    all
}

/// The kind of an entry. A new kind does not compile before it is listed here, and the test wants each one in the fixture.
fn kind(entry: &SessionEntry) -> usize {
    match entry {
        SessionEntry::SessionStarted(_) => 0,
        SessionEntry::Moved(_) => 1,
        SessionEntry::Opened(_) => 2,
        SessionEntry::User(_) => 3,
        SessionEntry::Queued(_) => 4,
        SessionEntry::Delivered { .. } => 5,
        SessionEntry::Unqueued { .. } => 6,
        SessionEntry::RunStarted(_) => 7,
        SessionEntry::Configured(_) => 8,
        SessionEntry::Prefix(_) => 9,
        SessionEntry::ToolsChanged(_) => 10,
        SessionEntry::ModelDone(_) => 11,
        SessionEntry::ModelFailed(_) => 12,
        SessionEntry::Noticed(_) => 13,
        SessionEntry::Withheld(_) => 14,
        SessionEntry::Ruled(_) => 15,
        SessionEntry::Asked { .. } => 16,
        SessionEntry::Answered { .. } => 17,
        SessionEntry::Started { .. } => 18,
        SessionEntry::Done(_) => 19,
        SessionEntry::BackgroundStarted(_) => 20,
        SessionEntry::BackgroundEnded(_) => 21,
        SessionEntry::Interrupted {} => 22,
        SessionEntry::RunEnded(_) => 23,
        SessionEntry::Unknown(_) => 24,
        SessionEntry::BlobsLost { .. } => 25,
    }
}

fn every_record() -> Vec<Stored> {
    let parts = [session_entries(), run_entries(), model_entries(), call_entries(), background_entries()];
    let entries = parts.into_iter().flatten().zip(1..);
    let at = Timestamp(1_790_000_000_000);
    let mut all: Vec<Stored> = entries.map(|(entry, seq)| Stored::new(Seq(seq), at, entry)).collect();
    let seq = Seq(all.len() as u64 + 1);
    let unknown = SessionEntry::Unknown(raw(r#"{"telepathy":{"a": 1.0}}"#));
    all.push(Stored { v: 9, skip: true, ..Stored::new(seq, at, unknown) });
    all
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1.jsonl")
}

#[test]
fn every_entry_keeps_its_stored_form() {
    let records = every_record();
    let kinds: std::collections::BTreeSet<usize> = records.iter().map(|r| kind(&r.entry)).collect();
    assert_eq!(kinds, (0..=25).collect(), "each kind is in the fixture");
    let mut bytes = Vec::new();
    for record in &records {
        bytes.extend_from_slice(encode(record).unwrap().bytes());
        bytes.push(b'\n');
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file(), &bytes).unwrap();
    }
    let stored = std::fs::read(file()).unwrap();
    let [now, then] = [&bytes, &stored].map(|b| b.split(|b| *b == b'\n').collect::<Vec<_>>());
    for (number, (now, then)) in now.iter().zip(&then).enumerate() {
        let [now, then] = [now, then].map(|line| String::from_utf8_lossy(line));
        assert_eq!(now, then, "line {}", number + 1);
    }
    assert_eq!(now.len(), then.len());
    for (line, record) in then.iter().zip(&records) {
        let Decoded::Record(read) = decode(line) else { panic!("{}", String::from_utf8_lossy(line)) };
        assert_eq!(read, *record);
        assert_eq!(encode(&read).unwrap().bytes(), *line, "read and written again");
    }
}
