//! Stores: the conformance suite, and what only files can suffer.

#![cfg(test)]

mod blobs;
mod claims;
mod damage;
mod fixture;
mod older;
mod stores;

use std::sync::Arc;

use open_agent_model::{SessionId, Timestamp};
use open_agent_session::{Log, Owner, SessionStore, SessionWriter, StoreError};

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

async fn open(store: &(impl SessionStore + Clone + 'static)) -> Result<(SessionWriter, Log), StoreError> {
    open_as(Arc::new(store.clone()), "t").await
}

async fn open_as(store: Arc<dyn SessionStore>, owner: &str) -> Result<(SessionWriter, Log), StoreError> {
    SessionWriter::open(store, session(), Owner(owner.into()), Timestamp(1)).await
}
