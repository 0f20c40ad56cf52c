//! The agent loop: machine, driver, scheduler, budget, events
