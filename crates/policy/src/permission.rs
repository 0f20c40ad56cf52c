//! The pure decision about a call. Owns the policy and the order in which its layers are asked; touches no file, asks
//! nobody. A denial by any layer is final for the call.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use open_agent_model::{Access, Decision, Effect, Layer, PermissionMode, RawJson, Ruling};

/// What is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How calls are ruled that nothing else speaks of.
    pub mode: PermissionMode,
    /// Tools whose calls run in every mode.
    pub allowed_tools: BTreeSet<String>,
    /// The folders of the workspace, as real paths.
    pub roots: Vec<PathBuf>,
}

/// What is known about a call.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    /// The tool.
    pub tool: &'a str,
    /// The input it would run with.
    pub input: &'a RawJson,
    /// What it would touch, on real paths.
    pub access: &'a [Access],
    /// Whether it may run twice.
    pub effect: Effect,
    /// The working folder.
    pub cwd: &'a Path,
}

/// Decides about a call: the tools allowed beforehand, then the mode.
#[must_use]
pub fn decide(policy: &Policy, call: &CallFacts<'_>) -> Ruling {
    let ruling =
        |decision, layer: Layer, reason: String| Ruling { decision, layer: layer.into(), rule: None, reason };
    if policy.allowed_tools.contains(call.tool) {
        let reason = format!("{} is allowed beforehand", call.tool);
        return Ruling {
            rule: Some(call.tool.to_owned()),
            ..ruling(Decision::Allow, Layer::AllowedTools, reason)
        };
    }
    match policy.mode {
        PermissionMode::BypassPermissions => {
            ruling(Decision::Allow, Layer::Mode, "permission mode bypassPermissions runs everything".into())
        }
        _ => match outside(policy, call) {
            None => ruling(Decision::Allow, Layer::Mode, "it only reads inside the workspace".into()),
            Some(why) => ruling(Decision::Deny, Layer::Mode, refusal(call.tool, &why)),
        },
    }
}

/// Why a call is more than reading inside the workspace.
fn outside(policy: &Policy, call: &CallFacts<'_>) -> Option<String> {
    if call.effect != Effect::ReadOnly {
        return Some("it does more than read".into());
    }
    call.access.iter().find_map(|access| match access {
        Access::Read(path) if policy.roots.iter().any(|root| path.starts_with(root)) => None,
        Access::Read(path) => Some(format!("{} is outside the workspace", path.display())),
        // A tool of the embedding program, which declared it read-only.
        Access::Opaque(_) => None,
        _ => Some("it does more than read".into()),
    })
}

/// The text that the model reads. How the call could be allowed is not in it: that is for the user alone, and is said by
/// the library and by the command line.
fn refusal(tool: &str, why: &str) -> String {
    format!("{tool} was refused, because {why}; only reading inside the workspace is permitted")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(policy: &Policy, effect: Effect, access: &[Access]) -> Ruling {
        let input = RawJson::object();
        decide(policy, &CallFacts { tool: "T", input: &input, access, effect, cwd: Path::new("/w") })
    }

    fn read(path: &str) -> Access {
        Access::Read(path.into())
    }

    #[test]
    fn default_mode_reads_inside_the_workspace_only() {
        let policy = Policy { roots: vec!["/w".into()], ..Policy::default() };
        let allow = |effect, access: &[Access]| rule(&policy, effect, access).decision == Decision::Allow;
        assert!(allow(Effect::ReadOnly, &[read("/w/a"), read("/w")]));
        assert!(!allow(Effect::ReadOnly, &[read("/w/a"), read("/etc/passwd")]));
        assert!(!allow(Effect::ReadOnly, &[read("/w-backup/a")]), "whole path segments count");
        assert!(!allow(Effect::Unsafe, &[read("/w/a"), Access::Write("/w/a".into())]));
        assert!(!allow(Effect::ReadOnly, &[Access::Exec("ls".into())]));
        let reason = rule(&policy, Effect::Unsafe, &[Access::Exec("rm x".into())]).reason;
        assert_eq!(
            reason,
            "T was refused, because it does more than read; only reading inside the workspace is permitted"
        );
        let reason = rule(&policy, Effect::ReadOnly, &[read("/etc/passwd")]).reason;
        assert!(reason.contains("because /etc/passwd is outside the workspace;"), "{reason}");
    }

    #[test]
    fn the_model_is_not_told_how_a_call_could_be_allowed() {
        let policy = Policy { roots: vec!["/w".into()], ..Policy::default() };
        for (effect, access) in [(Effect::Unsafe, Access::Exec("x".into())), (Effect::ReadOnly, read("/etc"))]
        {
            let reason = rule(&policy, effect, &[access]).reason;
            for remedy in ["--", "allow", "mode", "bypass"] {
                assert!(!reason.contains(remedy), "{remedy}: {reason}");
            }
        }
    }

    #[test]
    fn what_is_allowed_beforehand_runs_and_so_does_everything_in_bypass() {
        let exec = [Access::Exec("rm x".into())];
        let listed = Policy { allowed_tools: ["T".to_owned()].into(), ..Policy::default() };
        assert_eq!(rule(&listed, Effect::Unsafe, &exec).layer, Layer::AllowedTools);
        let bypass = Policy { mode: PermissionMode::BypassPermissions, ..Policy::default() };
        assert_eq!(rule(&bypass, Effect::Unsafe, &exec).decision, Decision::Allow);
    }
}
