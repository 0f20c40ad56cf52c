//! Attacks on the crash safety of agents, from outside: see `README.md`.

mod cases;
mod child;
mod flips;
mod idle;
mod kills;
mod plan;
mod report;
mod rng;
mod server;
mod truth;

/// Seconds since 1970.
pub fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// Returns the number after a flag.
fn number(args: &[String], flag: &str) -> Option<u64> {
    let at = args.iter().position(|arg| arg == flag)?;
    args.get(at + 1)?.parse().ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seed = number(&args, "--seed").unwrap_or_else(|| (now() * 1000.0) as u64 % 1_000_000);
    let count = number(&args, "--count");
    let only = number(&args, "--only");
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let clean = match args.first().map(String::as_str) {
        Some("child") => {
            let job = serde_json::from_str(args.get(1).ok_or("no job")?)?;
            return runtime()?.block_on(child::run(job));
        }
        Some("idle-child") => return runtime()?.block_on(idle::child(&args[1..])),
        Some("kills") => kills::attack(seed, count.unwrap_or(300) as usize, only)?,
        Some("flips") => flips::attack(seed, count.unwrap_or(300), only)?,
        Some("cases") => runtime()?.block_on(cases::attack())?,
        Some("idle") => idle::attack(seed, count.unwrap_or(1000))?,
        _ => {
            return Err(
                "usage: open-agent-attack kills|flips|cases|idle [--seed N] [--count N] [--only N]".into()
            );
        }
    };
    std::process::exit(i32::from(!clean));
}
