//! What is wrong before a run begins: exit code 2 and one clear line that says what to do; nothing is sent. And what only
//! the other end can say is in `failures`.

use open_agent_testkit::server::{Reply, Script};

use crate::rig::Rig;

fn rig() -> Rig {
    Rig::new(Script::always(Reply::text("ok")))
}

#[test]
fn wrong_usage_is_exit_2_with_a_way_out() {
    let table: &[(&[&str], &str)] = &[
        (&["-p", "Go", "--model", ""], "error: the model name is empty: give a model with --model NAME"),
        (
            &["-p", "Go", "--model", "qwen3-max", "--provider", "openai", "--max-budget-usd", "1"],
            "error: a budget needs the price of qwen3-max, which is not known: leave --max-budget-usd out",
        ),
        (
            &["-p", "Go", "--max-budget-usd", "0"],
            "error: invalid value '0' for '--max-budget-usd <USD>': give an amount in dollars above 0",
        ),
        (
            &["-p", "Go", "--max-budget-usd", "1", "--budget-scope", "month"],
            "error: invalid value 'month' for '--budget-scope <SCOPE>': \"month\" is not a budget scope: use agent or session",
        ),
        (
            &["-p", "Go", "--budget-scope", "session"],
            "error: the following required arguments were not provided:\n  --max-budget-usd <USD>",
        ),
        (
            &["-p", "Go", "--max-turns", "-3"],
            "error: invalid value '-3' for '--max-turns <N>': give a whole number above 0",
        ),
        (&["-p", "Go", "--cwd", "nowhere"], "error: the working folder nowhere cannot be used: No such file"),
        (
            &["-p", "Go", "--system-prompt-file", "none.txt"],
            "error: --system-prompt-file none.txt cannot be read: No such file",
        ),
        (
            &["-p", "Go", "--system-prompt-file", "/dev/zero"],
            "error: --system-prompt-file /dev/zero is longer than 64 MiB",
        ),
        (&["-p", "Go", "--provider", "acme"], "error: there is no provider \"acme\": there are anthropic, "),
        (
            &["-p", "Go", "--model", "acme-1"],
            "error: no provider is known for the model \"acme-1\": name one with --provider NAME",
        ),
        (
            &["-p", "Go", "--base-url", "nonsense"],
            "error: the base URL is not an http or https address: is --base-url right?",
        ),
        (
            &["-p", "Go", "--provider", "generic", "--model", "m", "--base-url", ""],
            "error: the provider \"generic\" has no address of its own: give an address with --base-url",
        ),
        (&["-p", "Go", "--tools", "Reed"], "error: there is no tool \"Reed\": there are "),
        (
            &["-p", "Go", "--allowedTools", "Bash(git *)"],
            "error: invalid value 'Bash(git *)' for '--allowed-tools <TOOLS>': rules with a specification",
        ),
        (
            &["-p", "Go", "--permission-mode", "plan"],
            "error: invalid value 'plan' for '--permission-mode <MODE>': permission mode \"plan\" is not available yet",
        ),
        (&["-p", "Go", "--thinking", "0"], "error: invalid value '0' for '--thinking <MODE>'"),
        (&["-p", "Go", "--effort", "some"], "error: invalid value 'some' for '--effort <LEVEL>'"),
        (
            &["-p", "Go", "--include-partial-messages"],
            "error: --include-partial-messages needs --output-format",
        ),
        (&["-p", "Go", "on"], "error: there is one prompt too many, \"on\": quote the prompt"),
        (&["-p", "Go", "--resume", "x"], "error: --resume is not available: sessions are kept, but"),
        (&["-p", "Go", "--modle", "x"], "error: unexpected argument '--modle' found"),
        (&["-p"], "error: there is no prompt: give one as an argument"),
        (&["-p", "  \n"], "error: there is no prompt: give one as an argument"),
    ];
    for (args, says) in table {
        let rig = rig();
        let out = rig.run(*args);
        assert!(out.stderr.starts_with(says), "{args:?}: {}", out.stderr);
        assert_eq!((out.code(), out.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!out.stderr.contains("backtrace") && !out.stderr.contains("panicked"), "{args:?}");
        assert_eq!(rig.requests().len(), 0, "{args:?}");
    }
}

#[test]
fn no_key_for_the_vendors_own_host() {
    let rig = rig();
    for (args, variable) in [
        (&["-p", "Go"] as &[&str], "ANTHROPIC_API_KEY"),
        (&["-p", "Go", "--model", "gpt-5"], "OPENAI_API_KEY"),
    ] {
        let out = rig.finish(rig.bare(args).spawn().unwrap());
        assert_eq!(out.code(), 2);
        assert!(out.stderr.starts_with("error: no API key for api."), "{}", out.stderr);
        let way_out =
            format!(": set {variable} or CODEANY_API_KEY, or name a server that needs none with --base-url");
        assert!(out.stderr.contains(&way_out), "{}", out.stderr);
    }
    // Elsewhere none is asked for.
    let out = rig.finish(rig.bare(["-p", "Go", "--base-url", &rig.server.url()]).spawn().unwrap());
    assert_eq!((out.code(), out.stdout.as_str()), (0, "ok\n"), "{}", out.stderr);
}

#[test]
fn without_a_prompt_nothing_else_is_asked_for() {
    let rig = rig();
    let out = rig.finish(rig.bare::<&str>([]).spawn().unwrap());
    assert_eq!(out.code(), 2);
    assert!(out.stderr.starts_with("error: there is no prompt"), "{}", out.stderr);
}

#[test]
fn only_an_openai_key_and_no_model() {
    let rig = rig();
    let out = rig.finish(rig.bare(["-p", "Go"]).env("OPENAI_API_KEY", crate::rig::CANARY).spawn().unwrap());
    assert_eq!(out.code(), 2);
    assert!(out.stderr.contains("--model NAME"), "{}", out.stderr);
}

#[test]
fn stdin_that_is_no_text() {
    let rig = rig();
    for args in [&["-p"] as &[&str], &["-p", "Look:"]] {
        let out = rig.run_with_stdin(args, b"caf\xe9 au lait");
        assert_eq!(out.code(), 2, "{args:?}");
        assert!(out.stderr.starts_with("error: stdin is not UTF-8 text (byte 3): "), "{}", out.stderr);
    }
    assert_eq!(rig.requests().len(), 0);
}

#[test]
fn an_argument_that_is_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let rig = rig();
    let out = rig.run([std::ffi::OsStr::new("-p"), std::ffi::OsStr::from_bytes(b"caf\xe9")]);
    assert_eq!(out.code(), 2);
    assert!(out.stderr.starts_with("error: invalid UTF-8"), "{}", out.stderr);
}

#[test]
fn a_stdin_without_an_end() {
    let rig = rig();
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let out = rig.finish(rig.command(["-p"]).stdin(endless).spawn().unwrap());
    assert_eq!(out.code(), 2);
    assert!(out.stderr.starts_with("error: stdin is longer than 64 MiB"), "{}", out.stderr);
}

#[test]
fn a_folder_whose_name_is_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let rig = rig();
    let folder = rig.project.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&folder).unwrap();
    let out = rig.finish(rig.command(["-p", "Go"]).current_dir(&folder).spawn().unwrap());
    assert_eq!((out.code(), rig.requests().len()), (2, 0));
    assert!(out.stderr.contains("its path is not UTF-8 text"), "{}", out.stderr);
}

#[test]
fn a_variable_of_blanks_is_none() {
    let rig = rig();
    let out = rig.finish(rig.command(["-p", "Go"]).env("CODEANY_BASE_URL", "  ").spawn().unwrap());
    assert_eq!((out.code(), out.stdout.as_str()), (0, "ok\n"), "{}", out.stderr);
}

#[test]
fn help_that_cannot_be_written_is_no_success() {
    let rig = rig();
    for args in [["--help"], ["--version"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let out = rig.finish(rig.command(args).stdout(full).spawn().unwrap());
        assert_eq!(out.code(), 1, "{args:?}: {}", out.stderr);
    }
}

#[test]
fn help_names_every_option_and_the_exit_codes() {
    let rig = rig();
    let out = rig.run(["--help"]);
    assert_eq!((out.code(), out.stderr.as_str()), (0, ""));
    for argument in open_agent_cli::command().get_arguments().filter_map(|a| a.get_long()) {
        assert!(out.stdout.contains(&format!("--{argument}")), "{argument}");
    }
    assert!(out.stdout.contains("130 interrupted"));
    assert!(!out.stdout.contains("allowedTools"), "an alias is for scripts, not for readers");
}

#[test]
fn short_names_are_listed_with_the_models_that_they_stand_for() {
    let rig = rig();
    let help = rig.run(["--help"]).stdout;
    let out = rig.run(["models"]).stdout;
    let listing: serde_json::Value = serde_json::from_str(&rig.run(["models", "--json"]).stdout).unwrap();
    let catalogue = open_agent::Catalogue::default();
    assert!(catalogue.aliases().count() >= 4);
    for (alias, model) in catalogue.aliases() {
        assert!(out.contains(&format!("{alias} = {model}")), "{out}");
        assert_eq!(listing["aliases"][alias], model);
        let row = listing["models"].as_array().unwrap().iter().find(|row| row["value"] == model).unwrap();
        assert_eq!(row["aliases"], serde_json::json!([alias]));
        assert!(help.contains(alias), "{help}");
        rig.run(["-p", "Go", "--model", alias]);
        assert_eq!(rig.requests().last().unwrap().body["model"], model);
    }
    let one = rig.run(["models", "opus"]).stdout;
    assert!(one.contains("Short names: opus = ") && !one.contains("sonnet"), "{one}");
}
