//! A real process, killed with SIGKILL at random moments, and another one that goes on.
