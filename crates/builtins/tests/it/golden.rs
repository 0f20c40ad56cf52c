//! How models see the tools. To accept a change: `UPDATE_GOLDEN=1 cargo nextest run --workspace -E 'test(golden)'`.

use open_agent_builtins::core_tools;
use open_agent_tool::ToolSet;
use serde_json::Value;

#[test]
fn golden_specs() {
    let specs = ToolSet::new(core_tools()).specs();
    let mut rendered = String::from("[\n");
    for spec in &specs {
        let schema: Value = spec.input_schema.to().unwrap();
        let entry =
            serde_json::json!({ "name": spec.name, "description": spec.description, "input_schema": schema });
        rendered.push_str(&serde_json::to_string_pretty(&entry).unwrap());
        rendered.push_str(",\n");
    }
    rendered.truncate(rendered.len() - 2);
    rendered.push_str("\n]\n");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/tools.json");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &rendered).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(path).unwrap_or_default(),
        rendered,
        "run again with UPDATE_GOLDEN=1 to accept"
    );
}

#[test]
fn all_specs_together_are_small() {
    let specs = ToolSet::new(core_tools()).specs();
    let bytes = serde_json::to_string(&specs).unwrap().len();
    // Every request pays for them.
    assert!(bytes <= 1_500 * specs.len(), "{bytes} bytes");
}
