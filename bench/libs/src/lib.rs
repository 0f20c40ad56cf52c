//! What the programs share: the memory in use, and the closing line that bench.py reads.

use std::time::Instant;

/// How many agents run at the same time; the others wait, or are idle already.
pub const AT_ONCE: usize = 100;

/// Resident bytes of this process.
pub fn rss() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}

/// One line of JSON; `base` is what `rss` was before the first agent.
pub fn report(started: Instant, base: f64, agents: usize, items: usize) {
    let end = rss();
    let line = serde_json::json!({
        "wall_s": started.elapsed().as_secs_f64(),
        "base_mb": base / 1e6,
        "end_mb": end / 1e6,
        "per_agent_kb": (end - base) / agents as f64 / 1e3,
        "items": items,
    });
    println!("{line}");
}
