//! llmock, a model server that fails as it is told and judges how its client takes that.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::python::{Python, system_package};
use crate::shell;

const VERSION: &str = "0.2.2";

/// All that it needs, and nothing of what is only faster: those packages are built for some machines only.
const NEEDS: &[&str] = &[
    "annotated-doc==0.0.7",
    "annotated-types==0.8.0",
    "anyio==4.16.0",
    "certifi==2026.10.19.post1",
    "click==8.5.1",
    "fastapi==0.165.0",
    "h11==0.16.0",
    "httpcore==1.0.9",
    "httpx==0.28.1",
    "idna==3.20",
    "markdown-it-py==4.3.0",
    "mdurl==0.1.2",
    "opentelemetry-api==1.45.2",
    "pydantic==2.14.4",
    "pydantic_core==2.50.5",
    "Pygments==2.21.0",
    "python-multipart==0.0.34",
    "PyYAML==6.0.4",
    "rich==15.0.0",
    "shellingham==1.5.4",
    "starlette==1.10.0",
    "typer==0.29.2",
    "typing-inspection==0.4.5",
    "typing_extensions==4.16.0",
    "uvicorn==0.54.0",
];

pub(super) fn stamp() -> String {
    format!("llmock {VERSION}\n{}\n", NEEDS.join("\n"))
}

pub(super) fn install(place: &Path) -> Result<()> {
    if shell::quiet(Command::new("python3").arg("--version")).is_err() {
        system_package("python3")?;
    }
    let python = Python::new(&place.join("venv"))?;
    let llmock = format!("llmock=={VERSION}");
    python.install_exactly(&[&[llmock.as_str()], NEEDS].concat())
}

/// All of it can be loaded, and nothing that it needs is missing.
pub(super) fn check(place: &Path) -> Result<()> {
    let code = "import llmock.cli, llmock.main, uvicorn, importlib.metadata as m; print(m.version('llmock'))";
    let out = shell::quiet(Command::new(place.join("venv/bin/python")).args(["-c", code]))
        .context("llmock cannot be loaded")?;
    if out.trim_ascii() != VERSION.as_bytes() {
        bail!("another version than {VERSION}");
    }
    Ok(())
}
